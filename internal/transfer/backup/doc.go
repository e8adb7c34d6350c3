// Package backup writes and reads the form in which the disks of a machine are kept outside of it: a set is a directory with a
// directory for each backup, which holds a qcow2 file for each disk and a manifest that names the backup before it. docs/reference/backup-format.md
// describes it for people and other programs.
//
//	SET/b1/manifest.json  root.qcow2  root.sums
//	SET/b2/manifest.json  root.qcow2  root.sums     what changed since b1
//
// A backup is there or it is not: it has its name only when all of it is on stable storage. It is never changed afterwards.
//
// The package does not know where a disk comes from nor how it is known what changed, nor which backups are still wanted.
package backup
