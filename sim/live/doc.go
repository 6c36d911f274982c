// Package live carries out plans with operating-system processes on the wall clock: the engine that confirms what the
// virtual one finds, and the one for programs in other languages.
//
// One run:
//
//	database from a template -> a netfault link per replica -> processes at their phases -> faults at their instants,
//	each with its proof and its heal -> stop at the horizon -> the ledger, read when every session has gone
//
// The world is authoritative for what happened on the server (the ledger and the observer's samples), the replicas for what they
// believed, this package for the life of the processes and the faults. The same plan gives the same faults, not the same interleaving.
package live
