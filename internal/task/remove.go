package task

// RemoveBackups is the task of a worker that removes backups from a set (docs/reference/backup-format.md).
type RemoveBackups struct {
	Version int    `json:"version"`
	Machine string `json:"machine"` // namespace/name, for messages only
	// UID is that of the machine that the backups are of: a backup of another machine is not removed.
	UID string `json:"uid"`
	// Set is the directory of the set.
	Set string `json:"set"`
	// Checkpoints are the backups that are removed. All of them are, or none if one that stays lies over one of them.
	Checkpoints []string `json:"checkpoints"`
}
