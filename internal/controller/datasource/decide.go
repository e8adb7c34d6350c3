// Package datasource reports in the status of each DataSource the source that it refers to, and whether that exists. It makes
// nothing; volumes that name a DataSource follow it themselves.
package datasource

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/clonesource"
)

// facts are the facts that a DataSource's status depends on.
type facts struct {
	self cdiv1.DataSource
	next *cdiv1.DataSource // the one it stands for; nil: it names none, or there is none
	// lacks is why the claim or snapshot at the end of the chain cannot be cloned yet; empty: it can.
	lacks  string
	labels map[string]string // of that claim or snapshot
}

// verdict is the status to report.
type verdict struct {
	status  corev1.ConditionStatus
	reason  string
	message string
	source  cdiv1.DataSourceSource
	// labels are the labels that the DataSource takes from its source.
	labels map[string]string
}

// annLabels names the labels of a DataSource that it has from what it stands for, so that they can be told from its own.
const annLabels = "berth.dev/source-labels"

// inherited returns the labels that a DataSource should have from what it stands for: what it says itself wins.
func inherited(f facts) map[string]string {
	ours := strings.Split(f.self.Annotations[annLabels], ",")
	labels := clonesource.Inherited(f.labels)
	if f.next != nil {
		maps.Copy(labels, clonesource.Inherited(f.next.Labels))
	}
	for key := range labels {
		if _, said := f.self.Labels[key]; said && !slices.Contains(ours, key) {
			delete(labels, key)
		}
	}
	return labels
}

func decide(f facts) verdict {
	no := func(reason, format string, args ...any) verdict {
		return verdict{status: corev1.ConditionFalse, reason: reason, message: fmt.Sprintf(format, args...)}
	}
	last, broken := clonesource.End(&f.self, f.next)
	ref := f.self.Spec.Source.DataSource
	switch broken {
	case clonesource.Elsewhere:
		return no("CrossNamespaceReference", "DataSource %s/%s is in another namespace; only its own can be named", ref.Namespace, ref.Name)
	case clonesource.Itself:
		return no("SelfReference", "the DataSource names itself")
	case clonesource.Absent:
		return no("NotFound", "DataSource %s does not exist", ref.Name)
	case clonesource.TooFar:
		return no("MaxReferenceDepthReached", "DataSource %s names another DataSource; name that one", ref.Name)
	case clonesource.Empty:
		return no("NoSource", "no source is set")
	case clonesource.Whole:
	}
	what := ""
	if last.PVC != nil {
		what = fmt.Sprintf("PVC %s/%s", last.PVC.Namespace, last.PVC.Name)
	} else {
		what = fmt.Sprintf("snapshot %s/%s", last.Snapshot.Namespace, last.Snapshot.Name)
	}
	if f.lacks != "" {
		v := no("NotFound", "%s cannot be cloned yet: %s", what, f.lacks)
		v.source = last
		return v
	}
	return verdict{status: corev1.ConditionTrue, reason: "Ready", message: "DataSource is ready to be consumed", source: last,
		labels: inherited(f)}
}
