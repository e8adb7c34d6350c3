// Package render turns a plan and the objects it is about into the objects to create: worker pods, claims, services. It is pure,
// so its tests are golden YAML; it does not know which objects exist nor whether one is needed.
package render

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Labels and annotations on objects. Clients of CDI read those of cdi.kubevirt.io.
const (
	LabelApp       = "app"
	LabelComponent = "cdi.kubevirt.io"
	LabelClaimUID  = "berth.dev/claim-uid" // the claim a worker was made for: a name alone may outlive its claim
	LabelVolumeUID = "cdi.kubevirt.io/OwnedByUID"

	AnnTask    = "berth.dev/task"    // the worker's Task, mounted as a file by the downward API
	AnnAttempt = "berth.dev/attempt" // how many tries there were before this one
)

// WorkerEnd is the finalizer that keeps a worker which has a claim until its containers have certainly ended, however it is
// deleted: until then another pod could write at the same time, or change what it reads.
const WorkerEnd = "berth.dev/worker-end"

// DiskGate is the scheduling gate of a worker until it is recorded as a holder of its disks: a pod has a UID, which the record needs, only
// when it has been created, and it must not run before.
const DiskGate = "berth.dev/disk-access"

// App is the value of LabelApp on all objects of the data side.
const App = "containerized-data-importer"

// The roles of worker pods: values of LabelComponent and prefixes of their names.
const (
	RoleImport = "importer"
	RoleUpload = "cdi-upload-server"
	RoleServe  = "cdi-clone-source"
)

// longestName is the longest name of a pod that is also a valid hostname and label value.
const longestName = 63

// WorkerName is the name of the worker that fills a claim. Clients rely on importer-<claim> and cdi-upload-<claim>; a
// name that would be too long is cut and made unique by a hash of the whole.
func WorkerName(role, claim string) string {
	prefix := "importer-"
	if role == RoleUpload {
		prefix = "cdi-upload-"
	}
	return fit(prefix + claim)
}

func fit(name string) string {
	if len(name) <= longestName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return name[:longestName-9] + "-" + hex.EncodeToString(sum[:4])
}

// hostname returns a name that a Service can have too: one without dots.
func hostname(name string) string {
	if !strings.Contains(name, ".") {
		return fit(name)
	}
	sum := sha256.Sum256([]byte(name))
	return fit(strings.ReplaceAll(name, ".", "-") + "-" + hex.EncodeToString(sum[:4]))
}

// Labels returns the labels of an object of the data side.
func Labels(role string) map[string]string {
	labels := map[string]string{
		LabelApp:                       App,
		"app.kubernetes.io/component":  "storage",
		"app.kubernetes.io/managed-by": "cdi-controller",
		"app.kubernetes.io/part-of":    "berth",
	}
	if role != "" {
		labels[LabelComponent] = role
	}
	return labels
}
