package earlyboot

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func runsOf(b bits, size int64) []int64 {
	var out []int64
	for c := range size/cluster + 1 {
		if b.has(c) {
			out = append(out, c)
		}
	}
	return out
}

// TestJournal: after the end of the process everything counts that was noted, after the end of the node what was flushed, and
// what is not whole ends the journal.
func TestJournal(t *testing.T) {
	const size = 100 * cluster
	path := filepath.Join(t.TempDir(), "j")
	own := newBits(size)
	own.add(3)
	j, err := newJournal(path, heading{Claim: "c", Size: size}, own)
	if err != nil {
		t.Fatal(err)
	}
	nothing := func() error { return nil }
	between := func() error { return j.note(50, 2) } // noted while bytes were made durable: theirs may not have been among them
	for _, err := range []error{j.note(10, 2), j.flush(nothing), j.note(20, 1), j.flush(between), j.note(99, 1)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	check := func(what string, want ...int64) {
		t.Helper()
		h, own, err := readJournal(path, "c")
		if err != nil || h == nil {
			t.Fatalf("%s: %v, %v", what, h, err)
		}
		if got := runsOf(own, size); len(got) != len(want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		} else {
			for i := range got {
				if got[i] != want[i] {
					t.Errorf("%s: %v, want %v", what, got, want)
				}
			}
		}
	}
	check("after the end of the process", 3, 10, 11, 20, 50, 51, 99)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	boot, err := bootID()
	if err != nil {
		t.Fatal(err)
	}
	write := func(b []byte) {
		t.Helper()
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(whole[:len(whole)-1])
	check("a note that is not whole", 3, 10, 11, 20, 50, 51)
	write(bytes.Replace(whole, []byte(boot), []byte("another boot of the same node  -----"), 1))
	check("after the end of the node", 3, 10, 11, 20)
	if h, _, err := readJournal(path, "another claim"); h != nil || err != nil {
		t.Errorf("of another claim: %v, %v", h, err)
	}
	if at, err := Recall(filepath.Join(t.TempDir(), "disk.img"), "c"); at != nil || err != nil {
		t.Errorf("of no journal: %v, %v", at, err)
	}
}

// FuzzJournal: a volume is its tenant's, so a journal can be anything.
func FuzzJournal(f *testing.F) {
	path := filepath.Join(f.TempDir(), "j")
	j, err := newJournal(path, heading{Claim: "c", Size: 10 * cluster}, nil)
	if err == nil {
		err = j.note(2, 3)
	}
	b, readErr := os.ReadFile(path)
	if err != nil || readErr != nil {
		f.Fatal(err, readErr)
	}
	f.Add(b)
	f.Add([]byte(journalMagic + `{"claim":"c","size":1}` + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "j")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		h, own, err := readJournal(path, "c")
		if err == nil && h != nil && int64(len(own))*64 < h.Size/cluster {
			t.Errorf("a set of %d for %d bytes", len(own), h.Size)
		}
	})
}

func TestStreams(t *testing.T) {
	var s streams
	for i, want := range []int64{0, 4 * cluster, 8 * cluster, mostAhead, mostAhead} {
		if got := s.read(int64(i)*cluster+1<<30, int64(i+1)*cluster+1<<30); got != want {
			t.Errorf("read %d in order: %d ahead, want %d", i, got, want)
		}
	}
	if got := s.read(5<<30, 5<<30+4096); got != 0 {
		t.Errorf("a jump: %d ahead", got)
	}
}

func TestVerdict(t *testing.T) {
	disk := filepath.Join(t.TempDir(), "disk.img")
	if err := Verdict.TakeBack(disk); err != nil || Verdict.Of(disk) != "" {
		t.Fatal(err, Verdict.Of(disk))
	}
	if err := Verdict.Leave(disk, "the source has changed"); err != nil || Verdict.Of(disk) != "the source has changed" {
		t.Fatal(err, Verdict.Of(disk))
	}
	if err := Verdict.TakeBack(disk); err != nil || Verdict.Of(disk) != "" {
		t.Fatal(err, Verdict.Of(disk))
	}
}
