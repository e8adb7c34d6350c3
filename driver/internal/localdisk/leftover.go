package localdisk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
)

// A kubelet that is killed while the driver is away can forget a volume that it was about to take from a pod: what it goes by after a
// start are the directories of its pods. Nobody would unpublish that volume any more. So the driver takes away itself what is left, when
// the volume is to be deleted and is no pod's any more.

// The kubelet's paths, which it has never changed. The device of a Block volume is at publish/PV/POD, where the driver puts it, and at
// PV/dev/POD, which is the kubelet's own; the directories of the pod itself have no mounts of it. A Filesystem volume is mounted for a
// pod in the pod's own directory, which therefore stays, and for the node at its staging path.
var (
	podDevice    = regexp.MustCompile(`^(/.+)/plugins/kubernetes\.io/csi/volumeDevices/(?:publish/[^/]+|[^/]+/dev)/([0-9a-f-]{32,36})$`)
	stagingMount = regexp.MustCompile(`^/.+/plugins/kubernetes\.io/csi/` + regexp.QuoteMeta(Name) + `/[0-9a-f]{64}/globalmount$`)
)

// podOf is the pod whose device is at a path, empty if it is no pod's.
func podOf(path string) string {
	if m := podDevice.FindStringSubmatch(path); m != nil {
		return m[2]
	}
	return ""
}

// podFact is what the kubelet's directory says about a pod. The kubelet removes the directory of a pod when the pod is deleted, none of its
// containers runs and no volume is left in it.
type podFact int

const (
	podUnknown podFact = iota // no pod at all is there: the directory may be another's, or not be mounted here
	podThere
	podGone
)

// lookForPod asks the kubelet's directory for a pod. The driver is a pod itself, so a directory that is the kubelet's is never empty.
func lookForPod(kubelet, uid string) (podFact, error) {
	pods, err := os.ReadDir(filepath.Join(kubelet, "pods"))
	if errors.Is(err, fs.ErrNotExist) {
		return podUnknown, nil
	}
	if err != nil {
		return podUnknown, fmt.Errorf("look for pod %s: %w", uid, err)
	}
	for _, p := range pods {
		if p.Name() == uid {
			return podThere, nil
		}
	}
	if len(pods) == 0 {
		return podUnknown, nil
	}
	return podGone, nil
}

// whyKept says why a mount of a volume that is to be deleted must stay; empty: nobody needs it. A staging path is nobody's by itself: a pod
// that uses it has a mount of its own, here or in its containers.
func whyKept(point string, look func(kubelet, uid string) (podFact, error)) (string, error) {
	if stagingMount.MatchString(point) {
		return "", nil
	}
	m := podDevice.FindStringSubmatch(point)
	if m == nil {
		return "unmount it there if nobody needs it", nil
	}
	kubelet, uid := m[1], m[2]
	fact, err := look(kubelet, uid)
	switch {
	case err != nil:
		return "", err
	case fact == podGone:
		return "", nil
	case fact == podThere:
		return fmt.Sprintf("pod %s is still on the node; when it has ended and the kubelet has removed %s/pods/%s, the volume is deleted", uid, kubelet, uid), nil
	}
	return fmt.Sprintf("whether pod %s is gone cannot be told, for %s/pods shows no pod at all; if it is, unmount the path on the node", uid, kubelet), nil
}
