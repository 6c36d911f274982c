package invariants

// judges are all invariants, in the order they are shown.
var judges = []judge{
	{Info{"one-leader", "no effect follows the beginning of a later leadership, none is made without one, work ends before the unlock, and two replicas believe to lead at the same time no longer than the fault in play makes unavoidable"}, oneLeader},
	{Info{"no-duplicate-publish", "each scheduled unit of a row is published at most once"}, noDuplicatePublish},
	{Info{"failover", "after the lock became free, a healthy standby leads and has resumed work within one retry interval plus the attempt itself"}, failover},
	{Info{"probe", "no replica leads over a path that does not keep its session, and none is refused on one that does, without a fault in play"}, probing},
	{Info{"no-lost-publish", "everything due is published, or cancelled for a failure of its task, within the bound after the last heal"}, noLostPublish},
	{Info{"no-residue", "no lock of ours is held without a living, believing owner for longer than the bound"}, noResidue},
	{Info{"no-churn", "the leader changes only when an injected fault made it"}, noChurn},
	{Info{"leader-works", "an elected leader ticks at once, and then within one tick interval"}, leaderWorks},
	{Info{"terms-grow", "the terms of a key grow strictly in commit order, and each has a token of its own"}, termsGrow},
	{Info{"clean-step-down", "a leader that steps down has stopped its work before it unlocks, and is told that it has unlocked"}, cleanStepDown},
	{Info{"keys-agree", "all replicas of a role compete for one key"}, keysAgree},
	{Info{"lock-linearizable", "some order of the operations on a key explains every answer, if the lock is a mutex that is let go when its session ends"}, lockLinearizable},
}
