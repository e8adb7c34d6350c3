package render

// MakeEmpty has the launcher make a disk of that size in the volume if there is none.
func (m *Machine) MakeEmpty(volume string, size int64) {
	if m.Empty == nil {
		m.Empty = map[string]int64{}
	}
	m.Empty[volume] = size
}

// Grow has the launcher make the disk in the volume at least that large.
func (m *Machine) Grow(volume string, size int64) {
	if m.Sizes == nil {
		m.Sizes = map[string]int64{}
	}
	m.Sizes[volume] = size
}
