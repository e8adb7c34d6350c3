package export

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	exportv1 "github.com/berth-vm/berth/api/export/v1beta1"
	"github.com/berth-vm/berth/internal/controller/worker"
	"github.com/berth-vm/berth/internal/pods"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/task"
)

// report writes the state of an export.
func (r *Reconciler) report(ctx context.Context, s *seen, reason state.ExportReason) (ctrl.Result, error) {
	row := state.OfExport(reason)
	end := metav1.NewTime(expiry(s.of)).Rfc3339Copy()
	old := ptr.Deref(s.of.Status, exportv1.VirtualMachineExportStatus{})
	text := row.Text(r.detail(ctx, s, reason))
	next := exportv1.VirtualMachineExportStatus{
		Phase: exportv1.Phase(row.Phase), TokenSecretRef: ptr.To(tokenName(s.of)), TTLExpirationTime: &end,
		ServiceName: render.ExportName(s.of.Name), VirtualMachineName: s.machine, Conditions: r.conditions(old.Conditions, row, text),
	}
	again := look
	if next.Phase == exportv1.Ready {
		next.Links = s.links()
		again = min(max(time.Second, end.Sub(s.now)), lookService)
	}
	if equality.Semantic.DeepEqual(old, next) {
		return ctrl.Result{RequeueAfter: again}, nil
	}
	if reason == state.ExportExpired {
		return ctrl.Result{}, nil // it is deleted
	}
	err := r.cluster.ApplyStatus(ctx, &exportv1.VirtualMachineExport{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.of.Namespace, Name: s.of.Name, UID: s.of.UID}, Status: &next})
	if err != nil {
		return ctrl.Result{}, err
	}
	kind := corev1.EventTypeNormal
	if row.Warn {
		kind = corev1.EventTypeWarning
	}
	r.cluster.Turn(s.of, kind, string(row.Reason), text)
	return ctrl.Result{RequeueAfter: again}, nil
}

// detail returns the value of {detail} in a row.
func (r *Reconciler) detail(ctx context.Context, s *seen, reason state.ExportReason) string {
	switch reason {
	case state.ExportMissing, state.ExportNothing, state.ExportInUse, state.ExportUnready, state.ExportRestoring:
		return s.why
	case state.ExportReady:
		return expiry(s.of).UTC().Format(time.RFC3339)
	case state.ExportFailing:
		if ended := s.server.Status.ContainerStatuses[0].LastTerminationState.Terminated; ended != nil {
			return strings.TrimSpace(ended.Message)
		}
	case state.ExportStarting:
		if s.server == nil {
			return ""
		}
		if out, why := pods.Unplaceable(s.server); out {
			return why
		}
		if _, why := pods.Waiting(s.server); why != "" {
			return why
		}
		return worker.Trouble(ctx, r.live, s.server, s.now)
	case state.ExportExpired:
	}
	return ""
}

// links returns the download links of each disk.
func (s *seen) links() *exportv1.VirtualMachineExportLinks {
	server := render.ExportURL(s.of.Namespace, s.of.Name)
	base := server + "/volumes/"
	link := &exportv1.VirtualMachineExportLink{Cert: s.server.Annotations[render.AnnExportCA]}
	for _, d := range s.disks {
		formats := diskFormats
		if d.exported().Content == task.Archive {
			formats = archiveFormats
		}
		v := exportv1.VirtualMachineExportVolume{Name: d.name}
		for _, f := range formats {
			v.Formats = append(v.Formats, exportv1.VirtualMachineExportVolumeFormat{Format: f.format, URL: base + d.name + "/" + f.path})
		}
		link.Volumes = append(link.Volumes, v)
	}
	if s.server.Annotations[render.AnnExportManifests] != "" {
		link.Manifests = []exportv1.VirtualMachineExportManifest{
			{Type: exportv1.AllManifests, URL: server + render.ExportManifests}, {Type: exportv1.AuthHeader, URL: server + render.ExportHeaderManifest},
		}
	}
	return &exportv1.VirtualMachineExportLinks{Internal: link}
}

type format struct {
	format exportv1.Format
	path   string
}

// What the server has for each disk, and for each archive.
var (
	diskFormats    = []format{{exportv1.Raw, "disk.img"}, {exportv1.Gzip, "disk.img.gz"}, {exportv1.QCOW2, "disk.qcow2"}}
	archiveFormats = []format{{exportv1.Directory, "dir"}, {exportv1.TarGzip, "disk.tar.gz"}}
)

// conditions returns those that clients of the group know, with the time of those that did not change.
func (r *Reconciler) conditions(old []exportv1.Condition, row state.ExportRow, text string) []exportv1.Condition {
	next := []exportv1.Condition{
		{Type: exportv1.ConditionReady, Status: truth(row.Reason == state.ExportReady), Reason: string(row.Reason)},
		{Type: exportv1.ConditionClaims, Status: truth(row.Claims == state.ClaimsBound), Reason: string(row.Claims)},
	}
	for i := range next {
		c := &next[i]
		c.Message, c.LastTransitionTime = text, metav1.NewTime(r.clock.Now()).Rfc3339Copy()
		for _, was := range old {
			if was.Type == c.Type && was.Status == c.Status {
				c.LastTransitionTime = was.LastTransitionTime
			}
		}
	}
	return next
}

func truth(b bool) corev1.ConditionStatus {
	if b {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}
