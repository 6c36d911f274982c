package flawed

var selectOneHeartbeat = Flaw{
	Name: "select-1-heartbeat",
	Models: "Its heartbeat is SELECT 1, which a pooler answers from any backend, with the lock long gone: " +
		"after two leaders wrote at once, the fix checked the connection where a reviewer asked for the lock (timescale/prometheus-postgresql-adapter #91).",
	Terms:  true,
	Probes: true,
	make: func(v *variant) {
		v.l.Beat = selectOne
		v.l.Echo = false
	},
}
