package invariants

// judges are all invariants, in the order they are shown.
var judges = []judge{
	{Info{"one-leader", "no effect follows the beginning of a later leadership, none is made without one, work ends before the unlock, and two replicas believe to lead at the same time no longer than the fault in play makes unavoidable"}, oneLeader},
	{Info{"no-duplicate-publish", "each scheduled unit of a row is published at most once"}, noDuplicatePublish},
	{Info{"failover", "after the lock became free, a healthy standby leads and has resumed work within one retry interval plus the attempt itself"}, failover},
	{Info{"probe", "no replica leads over a path that does not keep its session, and none is refused on one that does, without a fault in play"}, probing},
}
