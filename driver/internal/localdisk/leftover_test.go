package localdisk

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	testPod     = "0b7a3c1e-95f4-4f0e-8f43-3b2f6d2f9a10"
	publishPath = "/plugins/kubernetes.io/csi/volumeDevices/publish/pvc-1/" + testPod
	devicePath  = "/plugins/kubernetes.io/csi/volumeDevices/pvc-1/dev/" + testPod
	podPath     = "/pods/" + testPod + "/volumes/kubernetes.io~csi/pvc-1/mount"
)

func stagingPath(driver string) string {
	return "/plugins/kubernetes.io/csi/" + driver + "/" + strings.Repeat("0a", 32) + "/globalmount"
}

// TestWhyKept: every kind of path, with everything that can be known of a pod. Only what certainly has no owner is deleted.
func TestWhyKept(t *testing.T) {
	const kubelet = "/var/lib/kubelet"
	gone := map[podFact]string{podGone: "", podThere: "is still on the node", podUnknown: "cannot be told"}
	always := func(says string) map[podFact]string {
		return map[podFact]string{podGone: says, podThere: says, podUnknown: says}
	}
	for point, want := range map[string]map[podFact]string{
		kubelet + publishPath:                                 gone,
		kubelet + devicePath:                                  gone,
		kubelet + stagingPath(Name):                           always(""),
		kubelet + podPath:                                     always("unmount it there"),
		kubelet + stagingPath("other.example"):                always("unmount it there"),
		kubelet + publishPath + "/more":                       always("unmount it there"),
		kubelet + strings.TrimSuffix(publishPath, "6d2f9a10"): always("unmount it there"),
		publishPath: always("unmount it there"),
		"/mnt":      always("unmount it there"),
		"/":         always("unmount it there"),
	} {
		for fact, says := range want {
			why, err := whyKept(point, func(dir, uid string) (podFact, error) {
				if dir != kubelet || uid != testPod {
					t.Errorf("%s: pod %q is looked for in %q", point, uid, dir)
				}
				return fact, nil
			})
			if err != nil || (says == "") != (why == "") || !strings.Contains(why, says) {
				t.Errorf("%s, pod %d: %q, %v, want %q", point, fact, why, err, says)
			}
		}
	}
	broken := errors.New("no permission")
	if _, err := whyKept(kubelet+publishPath, func(string, string) (podFact, error) { return podGone, broken }); !errors.Is(err, broken) {
		t.Errorf("a directory that cannot be read: %v", err)
	}
}

// TestLookForPod: a pod is gone only where others are.
func TestLookForPod(t *testing.T) {
	kubelet := t.TempDir()
	pods := filepath.Join(kubelet, "pods")
	expect := func(want podFact) {
		t.Helper()
		if got, err := lookForPod(kubelet, testPod); got != want || err != nil {
			t.Errorf("got %d, %v, want %d", got, err, want)
		}
	}
	expect(podUnknown)
	for _, step := range []struct {
		dir  string
		want podFact
	}{{pods, podUnknown}, {filepath.Join(pods, "another"), podGone}, {filepath.Join(pods, testPod), podThere}} {
		if err := os.Mkdir(step.dir, 0o700); err != nil {
			t.Fatal(err)
		}
		expect(step.want)
	}
	if _, err := lookForPod(filepath.Join(kubelet, "pods", "another", "\x00"), testPod); err == nil {
		t.Error("what cannot be read says something")
	}
}
