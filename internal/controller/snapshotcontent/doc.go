// Package snapshotcontent reads what a snapshot of a machine holds: the machine's definition, its claims and their
// VolumeSnapshots, and how far these are. It also makes the conditions that snapshots and restores have in common.
//
// It writes only events, and decides nothing: internal/controller/snapshot takes snapshots, internal/controller/restore restores them.
package snapshotcontent
