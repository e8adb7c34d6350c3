package localdisk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
)

// A kubelet that is killed while the driver is away can forget a volume that it was about to take from a pod: after a start it
// looks only at the directories of its pods, so it would never unpublish that volume. The driver removes what is left itself,
// when the volume is being deleted and no pod uses it any more.

// The kubelet's paths, which it has never changed. The device of a Block volume is at publish/PV/POD, where the driver puts it, and at
// PV/dev/POD, which is the kubelet's own; the directories of the pod itself have no mounts of it. A Filesystem volume is mounted for a
// pod in the pod's own directory, which therefore stays, and for the node at its staging path.
var (
	podDevice    = regexp.MustCompile(`^(/.+)/plugins/kubernetes\.io/csi/volumeDevices/(?:publish/[^/]+|[^/]+/dev)/([0-9a-f-]{32,36})$`)
	stagingMount = regexp.MustCompile(`^/.+/plugins/kubernetes\.io/csi/` + regexp.QuoteMeta(Name) + `/[0-9a-f]{64}/globalmount$`)
)

// podOf returns the pod whose device is at a path, empty if it is no pod's.
func podOf(path string) string {
	if m := podDevice.FindStringSubmatch(path); m != nil {
		return m[2]
	}
	return ""
}

// podFact is the state of a pod as the kubelet's directory shows it. The kubelet removes the directory of a pod when the pod is
// deleted, none of its containers runs and no volume is left in it.
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

// whyKept returns why a mount of a volume that is being deleted must stay; "" if it is not needed. A staging path alone is not in
// use: a pod that uses it has a mount of its own, here or in its containers.
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
