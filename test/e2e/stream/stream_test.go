//go:build e2e

package stream

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	regtypes "github.com/google/go-containerregistry/pkg/v1/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/images"
	testguest "github.com/berth-vm/berth/images/guest"
	"github.com/berth-vm/berth/internal/testing/chunked"
	"github.com/berth-vm/berth/internal/transfer/decode"
	"github.com/berth-vm/berth/internal/virtctl/createstream"
	"github.com/berth-vm/berth/internal/virtctl/createvm"
	"github.com/berth-vm/berth/test/e2e/fixture"
)

// restarting is a registry that goes away in the middle of the first layer that it hands out, for a few requests, and permanently
// when it is shut.
type restarting struct {
	http.Handler
	armed, shut   atomic.Bool
	away          atomic.Bool // of the second image it hands out nothing
	cut, refusals atomic.Int32
}

// registryOutage is how many requests fail.
const registryOutage = 3

func (r *restarting) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if r.shut.Load() || r.away.Load() && strings.Contains(q.URL.Path, "/d1/blobs/") {
		panic(http.ErrAbortHandler)
	}
	if !r.armed.Load() {
		r.Handler.ServeHTTP(w, q)
		return
	}
	if r.cut.Load() == 1 && r.refusals.Add(1) <= registryOutage {
		panic(http.ErrAbortHandler) // nobody answers
	}
	if strings.Contains(q.URL.Path, "/blobs/") && q.Method == http.MethodGet {
		w = &cutting{w, r, 0}
	}
	r.Handler.ServeHTTP(w, q)
}

// cutting breaks the first answer that is longer than any configuration, once.
type cutting struct {
	http.ResponseWriter
	r    *restarting
	sent int
}

func (c *cutting) Write(p []byte) (int, error) {
	if c.sent += len(p); c.sent > 2<<20 && c.r.cut.CompareAndSwap(0, 1) {
		panic(http.ErrAbortHandler)
	}
	return c.ResponseWriter.Write(p)
}

// containerDisk pushes an image with a disk in a layer, compressed or not, or with a table of contents.
func containerDisk(y *fixture.Machines, ref string, disk []byte, kind packing, how ...remote.Option) {
	y.T.Helper()
	var layer []byte
	var said map[string]string
	switch kind {
	case unpacked:
		layer = plainLayer(y.T, disk)
	case gzipped:
		var b bytes.Buffer
		z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
		if err == nil {
			_, err = z.Write(plainLayer(y.T, disk))
		}
		if err == nil {
			err = z.Close()
		}
		if err != nil {
			y.T.Fatal(err)
		}
		layer = b.Bytes()
	case withTable:
		l := chunked.New(y.T, decode.Zstd, disk, 1<<20, chunked.Lies{})
		layer, said = l.Data, l.Annotations
	}
	img, err := mutate.Append(empty.Image, mutate.Addendum{Layer: static.NewLayer(layer, regtypes.DockerLayer), Annotations: said})
	if err != nil {
		y.T.Fatal(err)
	}
	at, err := name.ParseReference(ref, name.Insecure)
	if err == nil {
		err = remote.Write(at, img, how...)
	}
	if err != nil {
		y.T.Fatal(err)
	}
}

// packing is how a layer is stored.
type packing int

const (
	gzipped packing = iota
	unpacked
	withTable // zstd:chunked
)

func plainLayer(t testing.TB, disk []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	err := w.WriteHeader(&tar.Header{Name: "disk/disk.img", Mode: 0o444, Size: int64(len(disk))})
	if err == nil {
		_, err = w.Write(disk)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// streamPod is the pod of the stream that virtctl wrote.
func streamPod(ctx context.Context, y *fixture.Machines) *corev1.Pod {
	pods, err := y.Client.CoreV1().Pods(y.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=berth-stream"})
	if err != nil || len(pods.Items) != 1 {
		return nil
	}
	return &pods.Items[0]
}

// streamSays waits until a stream's pod has said all of this.
func streamSays(y *fixture.Machines, of func(context.Context) *corev1.Pod, texts ...string) {
	y.T.Helper()
	y.Wait("the stream to say "+strings.Join(texts, ", "), fixture.BootPatience, func(ctx context.Context) (bool, string) {
		pod := of(ctx)
		if pod == nil {
			return false, "there is no such pod"
		}
		said, err := y.Client.CoreV1().Pods(y.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
		if err != nil {
			return false, err.Error() + ": " + string(pod.Status.Phase)
		}
		for _, text := range texts {
			if !strings.Contains(string(said), text) {
				return false, string(said)
			}
		}
		return true, ""
	})
}

// streamed is a machine that boots from LUN 0 and has the other two besides, one to write to and one to read.
func streamed(y *fixture.Machines, name, node string, o createstream.Options) *kubevirt.VirtualMachine {
	vm := y.NetworkMachine(name, kubevirt.Volume{})
	spec := &vm.Spec.Template.Spec
	spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	spec.Volumes, spec.Domain.Devices.Disks = nil, nil
	for lun, disk := range []string{"root", "written", "shared"} {
		v := kubevirt.Volume{Name: disk, AccessMode: kubevirt.ReadShared, VolumeSource: kubevirt.VolumeSource{NetworkSource: kubevirt.NetworkSource{ISCSI: &kubevirt.ISCSISource{
			Host:   kubevirt.NetworkHost{Name: o.Name + "." + y.Namespace + ".svc", Port: new(intstr.FromInt(3260))},
			Portal: o.Target(), LUN: int32(lun), SecretRef: &corev1.LocalObjectReference{Name: o.Name}}}}}
		if disk != "shared" {
			v.Copy = &kubevirt.DiskCopy{Mode: kubevirt.CopyOnWrite, Capacity: new(resource.MustParse("128Mi"))}
		}
		spec.Volumes = append(spec.Volumes, v)
		spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, kubevirt.Disk{Name: disk, Serial: disk})
	}
	return vm
}

// byClaims has a machine name the claims of the LUNs instead of their address. An administrator lets Berth read the login that is behind them.
func byClaims(y *fixture.Machines, vm *kubevirt.VirtualMachine, o createstream.Options) {
	y.T.Helper()
	y.LetControllerRead(&corev1.SecretReference{Namespace: y.Namespace, Name: o.Name})
	for lun := range vm.Spec.Template.Spec.Volumes {
		v := &vm.Spec.Template.Spec.Volumes[lun]
		v.VolumeSource = fixture.VolumeOfClaim(fmt.Sprintf("%s-%d", o.Name, lun), nil).VolumeSource
		y.T.Cleanup(func() {
			pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%s-%d", y.Namespace, o.Name, lun)}}
			_ = y.Kube.Delete(context.Background(), pv)
		})
	}
}

// byContainer has a container make the volume: it is a stream of its own, of one image, as the example has it.
func byContainer(y *fixture.Machines, v *kubevirt.Volume, o createstream.Options, ref string) {
	y.T.Helper()
	text, err := os.ReadFile("../../../examples/container-volume/stream.yaml")
	if err != nil {
		y.T.Fatal(err)
	}
	docs := strings.Split(strings.ReplaceAll(string(text), "stream-login", o.Name), "\n---\n")
	example := &kubevirt.VirtualMachine{}
	if err := yaml.UnmarshalStrict([]byte(docs[len(docs)-1]), example); err != nil {
		y.T.Fatal(err)
	}
	c := example.Spec.Template.Spec.Volumes[0].Container
	c.Image = images.Berth
	c.Args = append(c.Args[:len(c.Args)-1], "--plain-http", ref)
	v.VolumeSource = kubevirt.VolumeSource{Container: c}
}

// TestStream: two machines on two nodes have the three LUNs of a stream that virtctl wrote, one by their address and one by their
// claims; the third disk of the one is made by a container, which is another stream. The registry is restarted while the first
// layer is read; of the second disk it has nothing for a while, and a guest that reads it waits, says so and continues; and when
// all layers are verified it is gone permanently: the guests read on, and each writes to disks of its own.
func TestStream(t *testing.T) {
	t.Parallel()
	y := fixture.NewMachines(t)
	r := &restarting{Handler: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
	host := strings.TrimPrefix(y.Serve(r), "http://")
	guest, err := os.ReadFile(fixture.GuestDir + "/" + testguest.QCOW2Compressed)
	if err != nil {
		t.Fatal(err)
	}
	o := createstream.Options{Name: "golden", Namespace: y.Namespace, Program: images.Berth, CacheSize: "1Gi", PlainHTTP: true, Claims: "128Mi"}
	data := fixture.DiskImage(24)
	for i, disk := range [][]byte{guest, data, data[:8<<20]} {
		ref := fmt.Sprintf("%s/disks/d%d:1", host, i)
		containerDisk(y, ref, disk, []packing{gzipped, unpacked, withTable}[i])
		o.Images = append(o.Images, ref)
	}
	objects, err := createstream.Objects(o)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := createvm.Write(&text, objects...); err != nil {
		t.Fatal(err)
	}
	r.armed.Store(true)
	y.Apply(text.String())
	streamSays(y, func(ctx context.Context) *corev1.Pod { return streamPod(ctx, y) }, "LUN 0 is ", "LUN 1 is ", "LUN 2 is ", "LUN 2: the layer has a table of contents")
	r.away.Store(true)
	var nodes []string // another test may be emptying one
	y.Wait("two nodes that take pods", fixture.Patience, func(context.Context) (bool, string) {
		nodes = y.ReadyNodes()
		return len(nodes) >= 2, fmt.Sprint(nodes)
	})
	machines := []*kubevirt.VirtualMachine{streamed(y, "one", nodes[0], o), streamed(y, "two", nodes[1], o)}
	byContainer(y, &machines[0].Spec.Template.Spec.Volumes[2], o, o.Images[2])
	byClaims(y, machines[1], o)
	for _, vm := range machines {
		y.CreateMachine(vm)
	}
	for _, vm := range machines {
		y.WaitStatus(vm, kubevirt.StatusRunning, fixture.BootPatience)
		y.GuestSays(vm, "berth-guest: ready")
	}
	written := "sha256 serial=written"
	y.TypeLine(machines[0], written)
	y.WaitReason(machines[0], "DiskStalled", "registry")
	r.away.Store(false) // it goes on by itself
	y.GuestSays(machines[0], "berth-guest: "+written+": "+fixture.DiskSum(data, int64(len(data))))
	const right = ": the layer's digest is right"
	streamSays(y, func(ctx context.Context) *corev1.Pod { return streamPod(ctx, y) }, "LUN 0"+right, "LUN 1"+right, "LUN 2"+right)
	streamSays(y, func(ctx context.Context) *corev1.Pod { return y.MakerPod(ctx, machines[0], "shared") }, "LUN 0"+right)
	if got := r.refusals.Load(); r.cut.Load() != 1 || got < registryOutage {
		t.Errorf("the registry was not restarted in the middle: %d requests found nobody", got)
	}
	r.shut.Store(true)
	for i, vm := range machines {
		area := fmt.Sprintf("serial=written %d %d %d", 1<<20, 1<<20, i+1)
		for _, q := range [][2]string{
			{written, fixture.DiskSum(data, int64(len(data)))}, {"sha256 serial=shared", fixture.DiskSum(data[:8<<20], 8<<20)}, {"write " + area, ""}, {"verify " + area, ""},
		} {
			y.TypeLine(vm, q[0])
			y.GuestSays(vm, "berth-guest: "+q[0]+": "+q[1])
		}
	}
}
