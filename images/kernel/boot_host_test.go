//go:build host

package kernel_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-vm/berth/images"
	"github.com/berth-vm/berth/images/guest"
	"github.com/berth-vm/berth/internal/imagevm"
	"github.com/berth-vm/berth/internal/transfer/erofs"
	"github.com/berth-vm/berth/internal/transfer/layerdisk"
)

const out = "../../bin/images/" + images.KernelDir

func sample(t *testing.T) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "sample")
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", file, "./sample")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the sample: %v\n%s", err, text)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// disk makes the stack of an image's layers in a folder.
func disk(t *testing.T, dir string, layers ...[]byte) (top string) {
	t.Helper()
	var d layerdisk.Disk
	var tree erofs.Tree
	create := func(name string) *os.File {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	below := ""
	for i, l := range layers {
		name := imagevm.LayerName(i) + ".qcow2"
		var err error
		d, err = d.Layer(create(name), below, imagevm.LayerName(i), func(w layerdisk.File) (int64, error) {
			made, err := erofs.Convert(bytes.NewReader(l), w, &tree, erofs.DefaultLimits)
			return made.Size, err
		})
		if err != nil {
			t.Fatal(err)
		}
		below = name
	}
	f := create("top.qcow2")
	if _, err := d.Room(f, below, imagevm.RoomName, d.Least(1<<30)); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

func packed(t *testing.T, headers []tar.Header, content []string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i, h := range headers {
		h.Size = int64(len(content[i]))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// console reads the output of a machine; a line with the expected text is sent to the channel.
type console struct {
	text bytes.Buffer
	wait string
	told chan struct{}
}

func (c *console) Write(p []byte) (int, error) {
	n, err := c.text.Write(p)
	if c.wait != "" && strings.Contains(c.text.String(), c.wait) {
		c.wait = ""
		close(c.told)
	}
	return n, err
}

// boot runs a machine to its end, and returns what it said on the console and how its program ended. Its power button is pressed when it has said
// a text, if there is one.
func boot(t *testing.T, top string, o imagevm.Orders, stop string) (said string, e *imagevm.Ended) {
	t.Helper()
	dir := t.TempDir()
	orders, ended, monitor := filepath.Join(dir, "orders"), filepath.Join(dir, "ended"), filepath.Join(dir, "monitor")
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(orders, text, 0o600); err != nil {
		t.Fatal(err)
	}
	qemu := exec.Command("qemu-system-x86_64", "-machine", "q35,accel=tcg", "-cpu", "max", "-m", "128", "-nodefaults", "-display", "none",
		"-no-reboot", "-serial", "stdio", "-kernel", filepath.Join(out, guest.Kernel), "-initrd", filepath.Join(out, guest.Initramfs),
		"-append", "console=ttyS0 quiet panic=-1", "-fw_cfg", "name="+imagevm.OrdersName+",file="+orders,
		"-device", "virtio-serial", "-chardev", "file,id=said,path="+ended, "-device", "virtserialport,chardev=said,name="+imagevm.PortName,
		"-drive", "if=virtio,format=qcow2,snapshot=on,file="+top, "-netdev", "user,id=n,restrict=on", "-device", "virtio-net,netdev=n",
		"-monitor", "unix:"+monitor+",server=on,wait=off")
	c := &console{wait: stop, told: make(chan struct{})}
	qemu.Stdout, qemu.Stderr = c, c
	if err := qemu.Start(); err != nil {
		t.Fatal(err)
	}
	slow := time.AfterFunc(5*time.Minute, func() { _ = qemu.Process.Kill() })
	defer slow.Stop()
	over := make(chan struct{})
	go func() {
		select {
		case <-c.told:
			press(monitor)
		case <-over:
		}
	}()
	err = qemu.Wait()
	close(over)
	if err != nil {
		t.Errorf("QEMU: %v", err)
	}
	said = strings.ReplaceAll(c.text.String(), "\r\n", "\n")
	t.Log(said)
	answer, err := os.ReadFile(ended)
	if err != nil {
		t.Fatal(err)
	}
	if e = imagevm.Read(answer); e == nil {
		t.Fatalf("the guest said %q", answer)
	}
	return said, e
}

// press presses the power button until QEMU ends: the guest does not react to it before it has started.
func press(monitor string) {
	c, err := net.Dial("unix", monitor)
	if err != nil {
		return
	}
	defer func() { _ = c.Close() }()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, c)
	}()
	again := time.NewTicker(2 * time.Second)
	defer again.Stop()
	for {
		_, _ = io.WriteString(c, "system_powerdown\n")
		select {
		case <-again.C:
		case <-ended:
			return
		}
	}
}

// TestBoot: a machine runs the program of an image of two layers as the image says, and its end is the machine's; the power button asks it to end.
func TestBoot(t *testing.T) {
	dir := t.TempDir()
	top := disk(t, dir,
		packed(t, []tar.Header{{Name: "sample", Mode: 0o755}, {Name: "etc/passwd", Mode: 0o644}, {Name: "data/gone", Mode: 0o644}, {Name: "data/stays", Mode: 0o644}},
			[]string{string(sample(t)), "root:x:0:0:root:/:/\napp:x:1000:1001:app:/home/app:/\n", "x", "x"}),
		packed(t, []tar.Header{{Name: "data", Typeflag: tar.TypeDir, Mode: 0o755, Uid: 1000}, {Name: "data/.wh.gone", Mode: 0o644}, {Name: "data/new", Mode: 0o644}}, []string{"", "", "x"}))
	said, e := boot(t, top, imagevm.Orders{Layers: []int{0, 1}, Command: []string{"/sample", "list=/data", "write=/data/mine", "exit=7"}, User: "app",
		Env: []string{"GREETING=hello world"}, Dir: "/home/app", Host: "box"}, "")
	for _, want := range []string{
		`sample: args=["list=/data" "write=/data/mine" "exit=7"] uid=1000 gid=1001 dir=/home/app host=box greeting="hello world" terminal=true`,
		"sample: /data/new ----------\nsample: /data/stays ----------\n", "sample: write /data/mine: <nil>\n",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("the console lacks %q", want)
		}
	}
	if strings.Contains(said, "gone") {
		t.Error("a file that the upper layer takes away is there")
	}
	if *e != (imagevm.Ended{Status: 7}) {
		t.Errorf("it ended with %v, want status 7", e)
	}
	said, e = boot(t, top, imagevm.Orders{Layers: []int{0, 1}, Command: []string{"/sample", "serve=:80"}, User: "app"}, "sample: serves")
	if !strings.Contains(said, "sample: asked to end") || *e != (imagevm.Ended{}) {
		t.Errorf("when the power button was pressed it ended with %v", e)
	}
}
