//go:build e2e

package upload

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// TestUploadsAtOnce has fifty uploads under way at the same moment, through both proxies to fifty workers: all arrive, each at
// its place. Meanwhile another one to the same volume is sent away, and one whose client goes away is told of and repeated.
// The proxies stay within their bounds.
//
// It is not parallel: fifty workers ask for five cores, which leaves little of three nodes with two each for the other tests.
func TestUploadsAtOnce(t *testing.T) {
	d := fixture.NewUploads(fixture.NewVolumes(t))
	const (
		uploads = 50
		// more than sockets hold on the way to a worker: who has sent half of it is being served
		large = 48 * fixture.MiB
		// of one proxy, whatever passes through it; half of what it may have at all
		most = 64 * fixture.MiB
	)
	began := time.Now()
	crowd := make([]*flight, uploads)
	for i := range crowd {
		crowd[i] = newFlight(fmt.Sprintf("disk-%d", i), fixture.DiskImage(4))
	}
	busy, leaves := crowd[0], crowd[1]
	busy.data = fixture.DiskImage(large / fixture.MiB)
	awaitAll(d, crowd)
	t.Logf("%d volumes were ready for their uploads after %s", uploads, time.Since(began).Round(time.Second))

	for _, f := range crowd {
		f.token = d.RequestToken(f.name)
	}
	began = time.Now()
	send := sender(d)
	for _, f := range crowd {
		go func() { f.done <- send(f) }()
	}
	for _, f := range crowd {
		f.reached(d)
	}
	t.Logf("all were half-way after %s", time.Since(began).Round(time.Millisecond))
	d.Answers("503", "another upload to this volume is going on", busy.token, "/v1beta1/upload", "--data-binary", "x")
	leaves.leave()
	for _, f := range crowd {
		if f != leaves {
			close(f.goOn)
		}
	}
	for _, f := range crowd {
		if err := <-f.done; (err != nil) != (f == leaves) {
			t.Errorf("upload to %s: %v", f.name, err)
		}
	}
	d.WaitEvent(leaves.name, fixture.Patience, func(reason, message string) bool {
		return reason == "UploadFailed" && strings.Contains(message, "the client went away")
	})
	again := d.WriteFile("again.img", leaves.data)
	d.Wait("the upload whose client went away to be repeated", fixture.Patience, func(context.Context) (bool, string) {
		status, text := d.Curl(leaves.token, "/v1beta1/upload", "-T", again)
		return status == "200", status + " " + text
	})
	untilAll(d, crowd, cdiv1.Succeeded)
	t.Logf("all were there after %s", time.Since(began).Round(time.Second))
	for pod, peak := range proxyPeaks(d, began) {
		t.Logf("proxy %s never had more than %d MiB", pod, peak/fixture.MiB)
		if peak > most {
			t.Errorf("proxy %s had %d bytes, more than %d", pod, peak, most)
		}
	}
	holdAll(d, crowd)
}

// flight is one of many uploads. It stops half-way until it is told to continue.
type flight struct {
	name  string
	data  []byte
	token string
	ctx   context.Context
	leave context.CancelFunc
	half  chan struct{} // closed when half of it was sent
	goOn  chan struct{}
	done  chan error
}

func newFlight(name string, data []byte) *flight {
	copy(data, name) // no two are the same
	ctx, leave := context.WithCancel(context.Background())
	return &flight{name: name, data: data, ctx: ctx, leave: leave, half: make(chan struct{}), goOn: make(chan struct{}), done: make(chan error, 1)}
}

// body is the body of the request.
func (f *flight) body() io.Reader {
	middle := len(f.data) / 2
	return io.MultiReader(bytes.NewReader(f.data[:middle]), f, bytes.NewReader(f.data[middle:]))
}

// Read is the stop.
func (f *flight) Read([]byte) (int, error) {
	close(f.half)
	select {
	case <-f.goOn:
		return 0, io.EOF
	case <-f.ctx.Done():
		return 0, f.ctx.Err()
	}
}

// reached waits until half of it was sent.
func (f *flight) reached(d *fixture.Uploads) {
	d.T.Helper()
	d.T.Cleanup(f.leave)
	limit := time.NewTimer(fixture.Patience)
	defer limit.Stop()
	select {
	case <-f.half:
	case err := <-f.done:
		d.T.Fatalf("upload to %s ended before its half: %v", f.name, err)
	case <-limit.C:
		d.T.Fatalf("half of the upload to %s was not sent after %s", f.name, fixture.Patience)
	}
}

// sender sends uploads, each in a connection of its own.
func sender(d *fixture.Uploads) func(*flight) error {
	d.T.Helper()
	ca, err := os.ReadFile(d.CA)
	if err != nil {
		d.T.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}}
	return func(f *flight) error {
		req, err := http.NewRequestWithContext(f.ctx, http.MethodPut, d.URL+"/v1beta1/upload", f.body())
		if err != nil {
			return err
		}
		req.ContentLength = int64(len(f.data))
		req.Header.Set("Authorization", "Bearer "+f.token)
		answer, err := c.Do(req)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			text, _ := io.ReadAll(io.LimitReader(answer.Body, 1024))
			return fmt.Errorf("%s: %s", answer.Status, text)
		}
		return nil
	}
}

// awaitAll makes a volume for each upload and waits until all are ready.
func awaitAll(d *fixture.Uploads, crowd []*flight) {
	d.T.Helper()
	class, mode := fixture.ClassWaits, corev1.PersistentVolumeFilesystem
	for _, f := range crowd {
		d.CreateObject(&cdiv1.DataVolume{
			// bound where the scheduler finds room for the worker
			ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: f.name, Annotations: map[string]string{fixture.BindImmediately: ""}},
			Spec: cdiv1.DataVolumeSpec{
				Source:  &cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}},
				Storage: &cdiv1.StorageSpec{StorageClassName: &class, VolumeMode: &mode, Resources: fixture.StorageRequest(fmt.Sprint(len(f.data)))},
			},
		})
	}
	untilAll(d, crowd, cdiv1.UploadReady)
}

// untilAll waits until every volume is in a phase.
func untilAll(d *fixture.Uploads, crowd []*flight, phase cdiv1.DataVolumePhase) {
	d.T.Helper()
	d.Wait(fmt.Sprintf("%d volumes to be %s", len(crowd), phase), 2*fixture.Patience, func(ctx context.Context) (bool, string) {
		var list cdiv1.DataVolumeList
		if err := d.Kube.List(ctx, &list, client.InNamespace(d.Namespace)); err != nil {
			return false, err.Error()
		}
		phases := map[cdiv1.DataVolumePhase]int{}
		for _, dv := range list.Items {
			phases[dv.Status.Phase]++
		}
		return phases[phase] == len(crowd), fmt.Sprint(phases)
	})
}

// holdAll compares every disk with what was sent to it, by one pod on each node.
func holdAll(d *fixture.Uploads, crowd []*flight) {
	d.T.Helper()
	claims, want := map[string][]string{}, map[string]string{}
	for _, f := range crowd {
		node := framework.VolumeNode(d.WaitBound(f.name))
		claims[node] = append(claims[node], f.name)
		want[f.name] = fixture.DiskSum(f.data, 0)
	}
	for node, names := range claims {
		d.Start(framework.Pod{Name: "sums-" + node, Claims: names, User: fixture.GuestUser,
			Script: "for c in " + strings.Join(names, " ") + "; do echo $c $(sha256sum < /$c/disk.img); done"})
	}
	for node := range claims {
		d.WaitPhase("sums-"+node, corev1.PodSucceeded)
		for line := range strings.Lines(d.Output("sums-" + node)) {
			if f := strings.Fields(line); len(f) > 1 && want[f[0]] == f[1] {
				delete(want, f[0])
			}
		}
	}
	for name := range want {
		d.T.Errorf("the disk of %s is not what was sent to it", name)
	}
}

// proxyPeaks is the most memory each proxy had in its life, which must have begun before since. A cluster's nodes are namespaces
// of this machine, so that their processes are seen here.
func proxyPeaks(d *fixture.Uploads, since time.Time) map[string]int64 {
	d.T.Helper()
	pods, err := d.Client.CoreV1().Pods("berth").List(d.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=uploadproxy"})
	if err != nil {
		d.T.Fatal(err)
	}
	groups, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		d.T.Fatal(err)
	}
	peaks := map[string]int64{}
	for _, path := range groups {
		group, err := os.ReadFile(path)
		command, errCommand := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		if err != nil || errCommand != nil || !bytes.HasPrefix(command, []byte("/usr/bin/uploadproxy")) {
			continue // it has ended, or is something else
		}
		for _, p := range pods.Items {
			if strings.Contains(string(group), "pod"+string(p.UID)) {
				peaks[p.Name] = peakMemory(filepath.Dir(path))
			}
		}
	}
	for _, p := range pods.Items {
		for _, c := range p.Status.ContainerStatuses {
			if end := c.LastTerminationState.Terminated; end != nil && end.FinishedAt.After(since) {
				d.T.Errorf("the proxy %s was restarted: %+v", p.Name, end)
			}
		}
		if peaks[p.Name] == 0 && p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning {
			d.T.Errorf("the process of proxy %s is not on this machine, or does not say what memory it has", p.Name)
		}
	}
	return peaks
}

// peakMemory returns the largest memory that a process had, 0 if the process does not report it.
func peakMemory(process string) int64 {
	status, err := os.ReadFile(filepath.Join(process, "status"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		var kib int64
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err == nil {
			return kib << 10
		}
	}
	return 0
}
