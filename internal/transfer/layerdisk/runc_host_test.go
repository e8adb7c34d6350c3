//go:build host

package layerdisk_test

import (
	"archive/tar"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// lister is where in the image this test's own program is, which lists what is around it when it is asked to.
const (
	lister  = "/lister"
	listing = "BERTH_TEST_LIST"
)

func TestMain(m *testing.M) {
	if os.Getenv(listing) == "" {
		os.Exit(m.Run())
	}
	all, err := list("/")
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(all)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// TestAsRuncShows: the kernel shows in the stack what a program sees that runc runs in the same image, unpacked by containerd, file by file.
func TestAsRuncShows(t *testing.T) {
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	layers := tenLayers()
	layers[0] = append(layers[0], dir("proc", 0o755, 0), owned(plain(lister[1:], string(program)), 0o755, 0))
	named := map[string]file{}
	var packed [][]byte
	for n, files := range layers {
		// containerd takes what it reads in order, so that one that comes late takes away files of its own layer, and fails.
		slices.SortStableFunc(files, func(a, b file) int { return cmp.Compare(b.takesAway(), a.takesAway()) })
		for i, f := range files {
			f.time = 1_700_000_000 + int64(1000*n+i)
			if f.kind == tar.TypeLink { // it says of its file what the file's own entry says, as archivers write it; containerd believes the last one
				of := named[f.link]
				f.mode, f.owner, f.xattr, f.time = of.mode, of.owner, of.xattr, of.time
			}
			files[i], named[f.name] = f, f
		}
		packed = append(packed, archive(t, files))
	}
	got, err := list(stacked(t, packed))
	if err != nil {
		t.Fatal(err)
	}
	want := shownByRunc(t, packed)
	for _, path := range []string{"nowhere", "nowhere/to", "nowhere/to/be"} {
		delete(want, path) // containerd makes the directories of what is taken away, though there is nothing to take away
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("the stack differs from what runc shows (-runc +stack):\n%s", diff)
	}
}

// takesAway is 1 for what takes a file of a lower layer away, and 0 for others.
func (f file) takesAway() int {
	if base := filepath.Base(f.name); strings.HasPrefix(base, ".wh.") && base != ".wh..wh..opq" {
		return 1
	}
	return 0
}

// shownByRunc lists the image from within a container.
func shownByRunc(t *testing.T, layers [][]byte) map[string]string {
	t.Helper()
	root := unpacked(t, layers)
	bundle := t.TempDir()
	may := []string{"CAP_DAC_READ_SEARCH", "CAP_DAC_OVERRIDE", "CAP_SYS_ADMIN"} // to see all files, and all that is to be known of them
	type m = map[string]any
	config, err := json.Marshal(m{
		"ociVersion": "1.0.2",
		"process": m{"args": []string{lister}, "cwd": "/", "env": []string{listing + "=1"}, "user": m{"uid": 0, "gid": 0},
			"capabilities": m{"bounding": may, "effective": may, "permitted": may}},
		"root": m{"path": root, "readonly": true},
		// runc makes devices of its own unless /dev is mounted: here it is the image's.
		"mounts": []m{{"destination": "/proc", "type": "proc", "source": "proc"}, {"destination": "/dev", "type": "bind", "source": filepath.Join(root, "dev"), "options": []string{"bind", "ro"}}},
		"linux":  m{"namespaces": []m{{"type": "mount"}, {"type": "pid"}, {"type": "ipc"}, {"type": "uts"}, {"type": "network"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), config, 0o644); err != nil {
		t.Fatal(err)
	}
	run := exec.Command("runc", "--root", filepath.Join(bundle, "state"), "run", "--bundle", bundle, fmt.Sprintf("berth-test-%d", os.Getpid()))
	var complaint strings.Builder
	run.Stderr = &complaint
	out, err := run.Output()
	if err != nil {
		t.Fatalf("runc: %v\n%s%s", err, out, complaint.String())
	}
	var all map[string]string
	if err := json.Unmarshal(out, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// unpacked has a containerd of the test's own unpack an image of these layers, and returns the directory. It unpacks every layer
// over those below, as the format defines; where it keeps layers apart, it knows no links to files of layers below.
func unpacked(t *testing.T, layers [][]byte) string {
	t.Helper()
	work := t.TempDir()
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{Architecture: runtime.GOARCH, OS: runtime.GOOS})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		if img, err = mutate.AppendLayers(img, static.NewLayer(l, types.OCIUncompressedLayer)); err != nil {
			t.Fatal(err)
		}
	}
	tag, err := name.NewTag("berth.test/ten:1")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(work, "image.tar")
	if err := tarball.WriteToFile(file, tag, img); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(work, "sock")
	config := filepath.Join(work, "config.toml")
	text := fmt.Sprintf("version = 2\nroot = %q\nstate = %q\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n[grpc]\naddress = %q\n",
		filepath.Join(work, "root"), filepath.Join(work, "state"), socket)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	daemon := exec.Command("containerd", "--config", config)
	log, err := os.Create(filepath.Join(work, "log"))
	if err != nil {
		t.Fatal(err)
	}
	daemon.Stdout, daemon.Stderr = log, log
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = daemon.Process.Kill()
		_ = daemon.Wait()
		_ = log.Close()
	})
	ctr := func(args ...string) string {
		return command(t, "ctr", append([]string{"--address", socket}, args...)...)
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for over := time.After(time.Minute); exec.Command("ctr", "--address", socket, "--connect-timeout", "1s", "version").Run() != nil; {
		select {
		case <-tick.C:
		case <-over:
			said, _ := os.ReadFile(log.Name())
			t.Fatalf("containerd does not come up:\n%s", said)
		}
	}
	ctr("images", "import", "--snapshotter", "native", file)
	chain := ""
	for _, l := range layers {
		if sum := fmt.Sprintf("sha256:%x", sha256.Sum256(l)); chain == "" {
			chain = sum
		} else {
			chain = fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(chain+" "+sum)))
		}
	}
	var mounts []struct{ Source string }
	said := ctr("snapshots", "--snapshotter", "native", "view", "--mounts", "shown", chain)
	if err := json.Unmarshal([]byte(said), &mounts); err != nil || len(mounts) != 1 {
		t.Fatalf("containerd shows the image as %s: %v", said, err)
	}
	return mounts[0].Source
}
