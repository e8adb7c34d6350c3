package vmexport

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	export "github.com/berth-vm/berth/api/export/v1beta1"
)

// link is the address of one volume in one format, with the credentials for it.
type link struct {
	url    string
	format export.Format
	cert   string
	token  string
	server *corev1.Pod
}

// preferred lists formats in order of preference, if the user does not choose one.
var preferred = []export.Format{export.Gzip, export.TarGzip, export.Raw}

// find finds the volume and the format that the user wants.
func (r *run) find(e *export.VirtualMachineExport, wanted ...export.Format) (link, error) {
	offer := e.Status.Links.Internal
	var names []string
	for _, v := range offer.Volumes {
		names = append(names, v.Name)
	}
	at := slices.Index(names, r.Volume)
	switch {
	case len(names) == 0:
		return link{}, fmt.Errorf("unable to access the volume info from '%s/%s' VirtualMachineExport", e.Namespace, e.Name)
	case r.Volume == "" && len(names) > 1:
		return link{}, fmt.Errorf("detected more than one downloadable volume in '%s/%s' VirtualMachineExport: Select the expected volume using the --volume flag: %s",
			e.Namespace, e.Name, strings.Join(names, ", "))
	case r.Volume == "":
		at = 0
	case at < 0:
		return link{}, fmt.Errorf("VirtualMachineExport '%s/%s' has no volume %s, only %s", e.Namespace, e.Name, r.Volume, strings.Join(names, ", "))
	}
	var has []string
	for _, want := range wanted {
		for _, f := range offer.Volumes[at].Formats {
			if f.Format == want {
				return link{url: f.URL, format: f.Format, cert: offer.Cert}, nil
			}
		}
	}
	for _, f := range offer.Volumes[at].Formats {
		has = append(has, string(f.Format))
	}
	return link{}, fmt.Errorf("volume %s of VirtualMachineExport '%s/%s' can be had as %s only", names[at], e.Namespace, e.Name, strings.Join(has, ", "))
}

// open finds what a download needs besides its address: the token, and the pod to forward a port to.
func (r *run) open(ctx context.Context, e *export.VirtualMachineExport, l *link) error {
	if l.token = r.token; l.token == "" {
		if e.Status.TokenSecretRef == nil {
			return fmt.Errorf("VirtualMachineExport '%s/%s' has no token", e.Namespace, e.Name)
		}
		secret, err := r.cluster.Core.CoreV1().Secrets(r.cluster.Namespace).Get(ctx, *e.Status.TokenSecretRef, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("read the token of the export: %w", err)
		}
		l.token = string(secret.Data[export.TokenKey])
	}
	if r.ServiceURL != "" || r.Direct {
		return nil
	}
	service, err := r.cluster.Core.CoreV1().Services(r.cluster.Namespace).Get(ctx, e.Status.ServiceName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("find the server of the export: %w", err)
	}
	pods, err := r.cluster.Core.CoreV1().Pods(r.cluster.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: service.Spec.Selector})})
	if err != nil {
		return fmt.Errorf("find the server of the export: %w", err)
	}
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			l.server = p
			return nil
		}
	}
	return fmt.Errorf("no pods found for the service %s", service.Name)
}
