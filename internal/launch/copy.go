package launch

// CopiesDir is where the files of copies are, one directory a volume. Each is on a medium of its own.
const CopiesDir = "/run/berth/copies"

// CopyFile is how large the file of a copy becomes at most that the guest may write room bytes to: the data, and the tables
// of qcow2, which take less than a thousandth of it.
func CopyFile(room int64) int64 { return room + room>>10 + 4<<20 }
