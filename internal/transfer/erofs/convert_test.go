package erofs

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-vm/berth/internal/task"
)

func archive(t testing.TB, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		text := h.Name
		if h.Typeflag == 0 || h.Typeflag == tar.TypeReg {
			h.Size = int64(len(text))
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		h.ModTime = time.Unix(7, 0)
		h.Format = tar.FormatPAX
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := w.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func file(name string) tar.Header { return tar.Header{Name: name} }
func link(name, to string) tar.Header {
	return tar.Header{Name: name, Linkname: to, Typeflag: tar.TypeSymlink, Mode: 0o777}
}
func hard(name, to string) tar.Header {
	return tar.Header{Name: name, Linkname: to, Typeflag: tar.TypeLink}
}
func folder(name string, mode int64, owner int) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: mode, Uid: owner, Gid: owner}
}

// convert returns the upper of two layers.
func convert(lower, upper []byte) (map[string]string, Made, error) {
	var tree Tree
	if lower != nil {
		if _, err := Convert(bytes.NewReader(lower), &memory{}, &tree, DefaultLimits); err != nil {
			return nil, Made{}, err
		}
	}
	var m memory
	made, err := Convert(bytes.NewReader(upper), &m, &tree, DefaultLimits)
	if err != nil {
		return nil, made, err
	}
	out, err := readBack(m.b, made.Size)
	return out, made, err
}

const plainFile = "100644 0:0 7 links=1 "

// TestConvert: the result of a layer over another, file by file.
func TestConvert(t *testing.T) {
	lower := archive(t, folder("usr", 0o755, 0), folder("usr/lib", 0o750, 5), link("lib", "usr/lib"), link("up", "../../usr"), folder("dir", 0o700, 9), file("dir/old"), file("plain"),
		tar.Header{Name: "usr/lib/file", Mode: 0o4750, Uid: 3, Gid: 4, PAXRecords: map[string]string{"SCHILY.xattr.user.b": "2"}})
	below, belowText := "104750 3:4 7 links", ` 1.b=2 "usr/lib/file"`
	root := "40755 0:0 0 links=%d"
	dir := func(mode, owner, time, links int) string {
		return fmt.Sprintf("40%o %d:%d %d links=%d", mode, owner, owner, time, links)
	}
	for name, c := range map[string]struct {
		upper []tar.Header
		want  map[string]string
	}{
		"nothing":                   {nil, map[string]string{".": fmt.Sprintf(root, 2)}},
		"a file":                    {[]tar.Header{file("a")}, map[string]string{".": fmt.Sprintf(root, 2), "a": plainFile + `"a"`}},
		"out of the root":           {[]tar.Header{file("../../etc/../a")}, map[string]string{".": fmt.Sprintf(root, 2), "a": plainFile + `"../../etc/../a"`}},
		"a directory keeps its own": {[]tar.Header{file("dir/new")}, map[string]string{".": fmt.Sprintf(root, 3), "dir": dir(0o700, 9, 7, 2), "dir/new": plainFile + `"dir/new"`}},
		"through a link below": {[]tar.Header{file("lib/new")}, map[string]string{".": fmt.Sprintf(root, 3), "usr": dir(0o755, 0, 7, 3),
			"usr/lib": dir(0o750, 5, 7, 2), "usr/lib/new": plainFile + `"lib/new"`}},
		"a link out of the root": {[]tar.Header{file("up/new")}, map[string]string{".": fmt.Sprintf(root, 3), "usr": dir(0o755, 0, 7, 2), "usr/new": plainFile + `"up/new"`}},
		"a directory over a link": {[]tar.Header{folder("lib", 0o755, 0), file("lib/new")}, map[string]string{".": fmt.Sprintf(root, 3), "lib": dir(0o755, 0, 7, 2),
			"lib/new": plainFile + `"lib/new"`}},
		"gone":                       {[]tar.Header{file("dir/.wh.old")}, map[string]string{".": fmt.Sprintf(root, 3), "dir": dir(0o700, 9, 7, 2), "dir/old": "20000 0:0 0 links=1 device 0x0"}},
		"gone where nothing was":     {[]tar.Header{file("no/where/.wh.x")}, map[string]string{".": fmt.Sprintf(root, 2)}},
		"gone and new, file":         {[]tar.Header{file("plain"), file(".wh.plain")}, map[string]string{".": fmt.Sprintf(root, 2), "plain": plainFile + `"plain"`}},
		"gone and new, directory":    {[]tar.Header{file(".wh.dir"), folder("dir", 0o755, 1)}, map[string]string{".": fmt.Sprintf(root, 3), "dir": dir(0o755, 1, 7, 2) + " 4.overlay.opaque=y"}},
		"new and gone, directory":    {[]tar.Header{file("dir/x"), file(".wh.dir")}, map[string]string{".": fmt.Sprintf(root, 3), "dir": dir(0o755, 0, 0, 2) + " 4.overlay.opaque=y", "dir/x": plainFile + `"dir/x"`}},
		"opaque":                     {[]tar.Header{file("dir/.wh..wh..opq"), file("dir/.wh.old")}, map[string]string{".": fmt.Sprintf(root, 3), "dir": dir(0o700, 9, 7, 2) + " 4.overlay.opaque=y"}},
		"opaque where nothing was":   {[]tar.Header{file("new/.wh..wh..opq"), file("new/x")}, map[string]string{".": fmt.Sprintf(root, 3), "new": dir(0o755, 0, 0, 2), "new/x": plainFile + `"new/x"`}},
		"notes of an old filesystem": {[]tar.Header{file(".wh..wh.plnk"), file(".wh..wh.aufs")}, map[string]string{".": fmt.Sprintf(root, 2)}},
		"hard links": {[]tar.Header{file("a"), hard("b", "/a"), hard("dir/c", "./b")}, map[string]string{".": fmt.Sprintf(root, 3), "a": strings.Replace(plainFile, "=1", "=3", 1) + `"a"`,
			"b": strings.Replace(plainFile, "=1", "=3", 1) + `"a"`, "dir": dir(0o700, 9, 7, 2), "dir/c": strings.Replace(plainFile, "=1", "=3", 1) + `"a"`}},
		"a hard link to a file below": {[]tar.Header{hard("dir/new", "up/lib/file"), hard("b", "dir/new")}, map[string]string{".": fmt.Sprintf(root, 4), "usr": dir(0o755, 0, 7, 3),
			"usr/lib": dir(0o750, 5, 7, 2), "usr/lib/file": below + "=3" + belowText, "dir": dir(0o700, 9, 7, 2), "dir/new": below + "=3" + belowText, "b": below + "=3" + belowText}},
		"a hard link to a link below": {[]tar.Header{hard("b", "lib")}, map[string]string{".": fmt.Sprintf(root, 2), "b": "120777 0:0 7 links=2 to usr/lib", "lib": "120777 0:0 7 links=2 to usr/lib"}},
		"linked and gone below": {[]tar.Header{hard("b", "lib/file"), file("usr/lib/.wh.file")}, map[string]string{".": fmt.Sprintf(root, 3), "usr": dir(0o755, 0, 7, 3),
			"usr/lib": dir(0o750, 5, 7, 2), "usr/lib/file": "20000 0:0 0 links=1 device 0x0", "b": below + "=1" + belowText}},
		"linked and replaced": {[]tar.Header{hard("b", "plain"), file("plain"), file(".wh.plain")}, map[string]string{".": fmt.Sprintf(root, 2), "plain": plainFile + `"plain"`, "b": plainFile + `"plain"`}},
		"the last one counts": {[]tar.Header{file("a"), link("a", "b"), {Name: "a", Mode: 0o4755}}, map[string]string{".": fmt.Sprintf(root, 2), "a": `104755 0:0 7 links=1 "a"`}},
		"attributes": {[]tar.Header{{Name: "a", PAXRecords: map[string]string{"SCHILY.xattr.user.b": "2", "SCHILY.xattr.security.capability": "1",
			"SCHILY.xattr.trusted.overlay.redirect": "/x", "SCHILY.xattr.user.overlay.opaque": "y", "SCHILY.xattr.system.nfs4_acl": "x"}}},
			map[string]string{".": fmt.Sprintf(root, 2), "a": `100644 0:0 7 links=1 6.capability=1 1.b=2 "a"`}},
	} {
		t.Run(name, func(t *testing.T) {
			got, _, err := convert(lower, archive(t, c.upper...))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestAlone: overlayfs does not look whether a root is opaque, so the layers below must be left out.
func TestAlone(t *testing.T) {
	for name, want := range map[string]bool{".wh..wh..opq": true, "dir/.wh..wh..opq": false} {
		if _, made, err := convert(archive(t, file("a")), archive(t, file(name))); err != nil || made.Alone != want {
			t.Errorf("%s: %+v, %v", name, made, err)
		}
	}
}

// TestTheSameBytes: a layer over the same layers is the same file, whatever the order of maps.
func TestTheSameBytes(t *testing.T) {
	var all []tar.Header
	for i := range 300 {
		all = append(all, tar.Header{Name: fmt.Sprintf("d%d/f%d", i%7, i), PAXRecords: map[string]string{"SCHILY.xattr.user.a": "1", "SCHILY.xattr.user.b": "2"}})
	}
	text := archive(t, all...)
	var first []byte
	for range 5 {
		var m memory
		if _, err := Convert(bytes.NewReader(text), &m, &Tree{}, DefaultLimits); err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = m.b
		}
		if !bytes.Equal(first, m.b) {
			t.Fatal("the same layer gave other bytes")
		}
	}
}

// TestRefusals: what is no layer, or too much of one.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		text []byte
		want task.Reason
	}{
		"no archive":                   {bytes.Repeat([]byte("x"), 2000), task.BadImage},
		"cut short":                    {archive(t, file(strings.Repeat("n/", 300)+"n"))[:2200], task.BadImage},
		"a name that is too long":      {archive(t, file(strings.Repeat("n", 256))), task.BadImage},
		"a path that is too long":      {archive(t, file(strings.Repeat("n/", 3000)+"n")), task.BadImage},
		"links in a circle":            {archive(t, link("a", "b"), link("b", "a"), file("a/x")), task.BadImage},
		"a link that grows":            {archive(t, link("a", "a/a"), file("a/x")), task.BadImage},
		"a file with files":            {archive(t, file("a"), file("a/x")), task.BadImage},
		"a hard link to nothing":       {archive(t, hard("a", "b")), task.BadImage},
		"a hard link to the root":      {archive(t, hard("b", "/")), task.BadImage},
		"a hard link to a directory":   {archive(t, folder("a", 0o755, 0), hard("b", "a")), task.BadImage},
		"a root that is a file":        {archive(t, link("./", "x")), task.BadImage},
		"takes away a directory's own": {archive(t, file("a/.wh..")), task.BadImage},
		"large attributes":             {archive(t, tar.Header{Name: "a", PAXRecords: map[string]string{"SCHILY.xattr.user.a": strings.Repeat("v", 64<<10)}}), task.BadImage},
		"an unknown type":              {archive(t, tar.Header{Name: "a", Typeflag: 'Z'}), task.UnsupportedImage},
	} {
		_, _, err := convert(nil, c.text)
		if !task.Is(err, c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	many := archive(t, file("a/b/c"), file("d"))
	for name, l := range map[string]Limits{"files": {Entries: 3, Bytes: 1 << 20, All: 100, Steps: 100}, "bytes": {Entries: 100, Bytes: 2 * blockSize, All: 100, Steps: 100}, "files of all": {Entries: 100, Bytes: 1 << 20, All: 3, Steps: 100},
		"steps": {Entries: 100, Bytes: 1 << 20, All: 100, Steps: 5}} {
		if _, err := Convert(bytes.NewReader(many), &memory{}, &Tree{}, l); !task.Is(err, task.BadImage) {
			t.Errorf("more %s than allowed: %v", name, err)
		}
	}
	broken := errors.New("no more room")
	if _, err := Convert(bytes.NewReader(many), full{broken}, &Tree{}, DefaultLimits); !errors.Is(err, broken) {
		t.Errorf("a full disk: %v", err)
	}
}

// TestStepsAreCounted: an archive whose entries make no new file, and lead through long links to it each time, is refused after so many steps: a few
// kilobytes that are repeated until the archive has the length that is allowed would keep a processor busy for hours.
func TestStepsAreCounted(t *testing.T) {
	long := strings.Repeat("./", maxPath/2-10)
	var all []tar.Header
	for i := range maxHops - 1 {
		all = append(all, link(fmt.Sprintf("l%d", i), long+fmt.Sprintf("l%d", i+1)))
	}
	all = append(all, folder(fmt.Sprintf("l%d", maxHops-1), 0o755, 0))
	for range 5000 {
		all = append(all, file("l0/.wh..wh..opq"))
	}
	began := time.Now()
	if _, _, err := convert(nil, archive(t, all...)); !task.Is(err, task.BadImage) || !strings.Contains(err.Error(), "names") {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
	if _, _, err := convert(nil, archive(t, all[:maxHops+10]...)); err != nil {
		t.Errorf("ten entries: %v", err)
	}
}

type full struct{ err error }

func (f full) WriteAt([]byte, int64) (int, error) { return 0, f.err }
func (f full) ReadAt([]byte, int64) (int, error)  { return 0, f.err }

// FuzzConvert converts two layers of anything: there is an error, or filesystems that can be read.
func FuzzConvert(f *testing.F) {
	lower := archive(f, folder("usr", 0o755, 0), link("lib", "usr"), file("usr/a"), link("loop", "loop"))
	for _, upper := range [][]byte{
		lower, archive(f, file("lib/.wh.a"), file("lib/b")), archive(f, file("usr/.wh..wh..opq"), hard("x", "usr/a")), archive(f, file("../x"), file("loop/x")),
		archive(f, tar.Header{Name: "c", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}, tar.Header{Name: "p", Typeflag: tar.TypeFifo}), archive(f, file(".wh..wh..opq")),
		archive(f, hard("lib/b", "lib/a"), file("usr/.wh.a"), hard("c", "usr/b")), archive(f, hard("b", "loop"), hard("usr", "b")),
		archive(f, file("a"), hard("b", "a"), file(".wh.a"), tar.Header{Name: "x", PAXRecords: map[string]string{"SCHILY.xattr.user.a": "b"}}), nil,
	} {
		f.Add(lower, upper)
	}
	f.Fuzz(func(t *testing.T, lower, upper []byte) {
		var tree Tree
		for _, text := range [][]byte{lower, upper} {
			var m memory
			made, err := Convert(bytes.NewReader(text), &m, &tree, Limits{Entries: 200, Bytes: 1 << 20, All: 400, Steps: 10_000})
			if err != nil {
				return
			}
			if made.Size > 1<<20+blockSize || made.Size%blockSize != 0 || int64(len(m.b)) > made.Size {
				t.Fatalf("a filesystem of %d bytes has %d", made.Size, len(m.b))
			}
			if _, err := readBack(m.b, made.Size); err != nil {
				t.Fatal(err)
			}
			tree = *again(t, &tree)
		}
	})
}

// again returns the tree as a file has it.
func again(t *testing.T, tree *Tree) *Tree {
	t.Helper()
	var b, b2 bytes.Buffer
	if err := tree.Save(&b); err != nil {
		t.Fatal(err)
	}
	size := b.Len()
	read, err := LoadTree(&b, tree.images)
	if err != nil {
		t.Fatal(err)
	}
	if err := read.Save(&b2); err != nil || b2.Len() != size || read.count != tree.count {
		t.Fatalf("a tree of %d bytes has %d when it is read and written again, %v", size, b2.Len(), err)
	}
	return read
}

// FuzzLoadTree: a file of a tree that is damaged is an error, and nothing worse.
func FuzzLoadTree(f *testing.F) {
	var tree Tree
	var b bytes.Buffer
	_, err := Convert(bytes.NewReader(archive(f, folder("usr", 0o755, 0), link("lib", "usr"), file("usr/a"))), &memory{}, &tree, DefaultLimits)
	if err == nil {
		err = tree.Save(&b)
	}
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, text []byte) {
		if tree, err := LoadTree(bytes.NewReader(text), []io.ReaderAt{&memory{}}); err == nil {
			again(t, tree)
		}
	})
}
