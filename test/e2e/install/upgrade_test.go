//go:build e2e

package install

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/berth-vm/berth/test/e2e/framework"
)

// TestUpgrade replaces every program of Berth while a guest runs and an import is on its way. Users can create volumes during the
// whole time: a webhook always answers the API server.
func TestUpgrade(t *testing.T) {
	s := newSite(t)
	image := make([]byte, 24<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(image) // never fails
	slow := s.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(&slowly{ResponseWriter: w}, r, "", time.Unix(1e9, 0), bytes.NewReader(image))
	}))
	s.kubectl(machine, "apply", "-f", "-")
	s.waitField("vm", "kept", ".status.printableStatus", "Running")
	guest := s.launcher()
	s.kubectl(fmt.Sprintf(`
apiVersion: cdi.kubevirt.io/v1beta1
kind: DataVolume
metadata: {name: slow, annotations: {cdi.kubevirt.io/storage.bind.immediate.requested: ""}}
spec:
  source: {http: {url: %q}}
  storage: {storageClassName: local, accessModes: [ReadWriteOnce], resources: {requests: {storage: 64Mi}}}
`, slow+"/disk.img"), "apply", "-f", "-")
	s.waitField("dv", "slow", ".status.phase", "ImportInProgress")

	stop := s.tryToCreate()
	s.install()
	tries, refused := stop()
	if refused != nil || tries == 0 {
		t.Errorf("of %d volumes that were made while Berth was replaced, one was refused: %v", tries, refused)
	}
	s.runsOn(guest)
	s.waitField("dv", "slow", ".status.phase", "Succeeded")
	script := fmt.Sprintf("head -c %d /slow/disk.img | sha256sum", len(image)) // the disk is larger than the image
	if got, want := s.Run(framework.Pod{Name: "sum", Script: script, Claims: []string{"slow"}}), fmt.Sprintf("%x", sha256.Sum256(image)); !strings.HasPrefix(got, want) {
		t.Errorf("the disk's sum is %s, want %s", got, want)
	}
	s.runsOn(guest)
}

// tryToCreate has the API server check a new volume again and again, until stop says how often, and what was refused first.
func (s *site) tryToCreate() (stop func() (tries int, refused error)) {
	ctx, cancel := context.WithCancel(s.Context())
	var object unstructured.Unstructured
	if err := yaml.Unmarshal([]byte(blank("tried")), &object.Object); err != nil {
		s.T.Fatal(err)
	}
	tries := 0
	var refused error
	var group sync.WaitGroup
	group.Go(func() {
		for ctx.Err() == nil {
			_, err := s.Dynamic.Resource(volumes).Namespace(s.Namespace).Create(ctx, &object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if ctx.Err() != nil {
				return
			}
			tries++
			if err != nil && refused == nil {
				refused = fmt.Errorf("try %d: %w", tries, err)
			}
			time.Sleep(50 * time.Millisecond) //nolint:forbidigo // as fast as a busy cluster's users, not as the API server can
		}
	})
	return func() (int, error) {
		cancel()
		group.Wait()
		return tries, refused
	}
}

// slowly is an answer that takes 24 s for a whole image, so that a worker is sure to meet a change of what controls it.
type slowly struct{ http.ResponseWriter }

func (s *slowly) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		n, err := s.ResponseWriter.Write(p[done:min(len(p), done+64<<10)])
		done += n
		if err != nil {
			return done, err
		}
		time.Sleep(64 * time.Millisecond) //nolint:forbidigo // it is what the server is: slow
	}
	return done, nil
}
