package filetree

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-vm/berth/internal/transfer/directory"
)

// stream returns a forged one.
func stream(t testing.TB, entries ...header) []byte {
	t.Helper()
	b := []byte(Magic)
	for _, h := range entries {
		text, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(text))), text...)
	}
	return append(b, 0, 0, 0, 0)
}

// read makes what a stream says in a directory beside one that is not to be touched.
func read(t testing.TB, b []byte) (inside string, err error) {
	t.Helper()
	dir := t.TempDir()
	inside = filepath.Join(dir, "inside")
	for _, d := range []string{inside, filepath.Join(dir, "outside")} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	to, err := directory.Open(inside, directory.Nothing)
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	err = Read(t.Context(), bytes.NewReader(b), to)
	if left, globErr := filepath.Glob(filepath.Join(dir, "outside", "*")); globErr != nil || left != nil {
		t.Errorf("made outside: %q, %v", left, globErr)
	}
	return inside, err
}

// TestForgedStreams: whatever a stream says, nothing is made or followed outside of the directory.
func TestForgedStreams(t *testing.T) {
	name := func(s string) []byte { return []byte(s) }
	for what, entries := range map[string][]header{
		"a name outside":           {{Kind: isFile, Name: name("../outside/x")}},
		"through a link":           {{Kind: isLink, Name: name("l"), To: name("../outside")}, {Kind: isFile, Name: name("l/x")}},
		"a directory of a link":    {{Kind: isLink, Name: name("l"), To: name("../outside")}, {Kind: isEnd, Name: name("l"), Mode: 0o777}},
		"a pipe through a link":    {{Kind: isLink, Name: name("l"), To: name("../outside")}, {Kind: isPipe, Name: name("l/x")}},
		"a name of a file outside": {{Kind: isSame, Name: name("x"), To: name("../outside")}},
		"of no kind":               {{Kind: "device", Name: name("x")}},
		"a directory with bytes":   {{Kind: isDir, Name: name("x"), Size: 5}},
		"a mode of no file":        {{Kind: isDir, Name: name("x"), Mode: 1 << 20}},
		"bytes that do not come":   {{Kind: isFile, Name: name("x"), Size: 1 << 40}},
	} {
		if _, err := read(t, stream(t, entries...)); err == nil {
			t.Errorf("%s was taken", what)
		}
	}
	if _, err := read(t, stream(t)); err != nil {
		t.Errorf("a volume without files: %v", err)
	}
	if _, err := read(t, stream(t)[:len(Magic)+2]); err == nil {
		t.Error("a stream that was cut off was taken")
	}
}

// FuzzRead: no stream makes anything outside of the directory, or takes more memory than it has bytes.
func FuzzRead(f *testing.F) {
	f.Add(stream(f, header{Kind: isDir, Name: []byte("d")}, header{Kind: isFile, Name: []byte("d/f")}, header{Kind: isEnd, Name: []byte("d"), Mode: 0o500}))
	f.Add(stream(f, header{Kind: isLink, Name: []byte("l"), To: []byte("../outside")}, header{Kind: isFile, Name: []byte("l/x")}))
	f.Fuzz(func(t *testing.T, b []byte) {
		inside, _ := read(t, b)
		_ = filepath.WalkDir(inside, func(path string, d os.DirEntry, _ error) error {
			if d != nil && d.IsDir() {
				return os.Chmod(path, 0o700) // or nobody could clean up
			}
			return nil
		})
	})
}
