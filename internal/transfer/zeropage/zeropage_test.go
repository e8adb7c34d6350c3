package zeropage

import "testing"

func TestIsZero(t *testing.T) {
	p := make([]byte, 3*len(zeroes)+17)
	if !IsZero(p) || !IsZero(nil) {
		t.Fatal("zeroes are not zero")
	}
	for _, at := range []int{0, 1, len(zeroes) - 1, len(zeroes), 2*len(zeroes) + 5, len(p) - 1} {
		p[at] = 1
		if IsZero(p) {
			t.Errorf("a one at %d was not seen", at)
		}
		p[at] = 0
	}
}

func TestRun(t *testing.T) {
	p := make([]byte, 5*Size)
	p[2*Size+9] = 1 // with off 0 the third page
	for name, c := range map[string]struct {
		from int
		off  int64
		n    int
		zero bool
	}{
		"zero pages before":       {0, 0, 2 * Size, true},
		"the page itself":         {2 * Size, 2 * Size, Size, false},
		"zero pages after":        {3 * Size, 3 * Size, 2 * Size, true},
		"pages of the disk count": {0, 512, Size - 512 + Size, true},
		"part of a page":          {2*Size + 8, 2*Size + 8, Size - 8, false},
	} {
		if n, zero := Run(p[c.from:], c.off); n != c.n || zero != c.zero {
			t.Errorf("%s: %d %v, want %d %v", name, n, zero, c.n, c.zero)
		}
	}
}
