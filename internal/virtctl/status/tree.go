package status

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/render"
)

// Progress is the annotation of a claim that is filled without a DataVolume that says how far that is, like "42.00%".
const Progress = annProgress

const (
	annProgress = "cdi.kubevirt.io/storage.populator.progress"
	annMessage  = names.RunMessage
	annState    = names.State
)

// Tree returns what the parts say.
func (s *Seen) Tree() Node {
	vm := s.Machine
	top := Node{
		Kind: "VirtualMachine", Name: vm.Namespace + "/" + vm.Name, Phase: string(vm.Status.PrintableStatus),
		Since: vm.CreationTimestamp.Time,
	}
	if c := ready(vm.Status.Conditions); c != nil {
		top.Since, top.Why = c.LastTransitionTime.Time, c.Message
		if c.LastProbeTime != nil { // when it first gave this reason
			top.Since = c.LastProbeTime.Time
		}
	}
	if s.Instance != nil {
		top.Where = s.Instance.Status.NodeName
	}
	for _, d := range s.Disks {
		top.Parts = append(top.Parts, s.disk(d))
	}
	s.addCopies(&top)
	for i := range s.Pods {
		if p := &s.Pods[i]; p.Labels[render.LabelDomain] == vm.Name && kindOf(p) != "worker" {
			top.Parts = append(top.Parts, podNode(p))
		}
	}
	top.Parts = append(top.Parts, s.Backups.nodes(vm.Name, vm.UID)...)
	return top
}

// addCopies adds the guest's copies of volumes to their disks. A disk that is in no claim is there only if it has one.
func (s *Seen) addCopies(top *Node) {
	if s.Instance == nil {
		return
	}
	for _, v := range s.Instance.Status.VolumeStatus {
		if v.Copy == nil {
			continue
		}
		n := Node{Kind: "copy", Name: string(v.Copy.Mode), Phase: v.Copy.Reason, Where: v.Copy.Medium, Progress: v.Copy.Progress}
		if v.Copy.Stored != nil {
			n.Why = v.Copy.Stored.String() + " stored"
		}
		if k := v.Copy.Keep; k != nil {
			n.Parts = []Node{{Kind: "kept in", Name: k.ClaimName, Phase: k.Reason, Progress: k.Progress, Why: k.Message}}
		}
		at := slices.IndexFunc(top.Parts, func(p Node) bool { return p.Kind == "disk" && p.Name == v.Name })
		if at < 0 {
			at = len(top.Parts)
			top.Parts = append(top.Parts, Node{Kind: "disk", Name: v.Name})
		}
		top.Parts[at].Parts = append(top.Parts[at].Parts, n)
	}
}

func ready(conditions []kubevirt.Condition) *kubevirt.Condition {
	i := slices.IndexFunc(conditions, func(c kubevirt.Condition) bool { return c.Type == "Ready" })
	if i < 0 {
		return nil
	}
	return &conditions[i]
}

// disk returns a volume of the machine: its DataVolume if it has one, its claim, and the pods that use the claim.
func (s *Seen) disk(d Disk) Node {
	n := Node{Kind: "disk", Name: d.Name}
	claim := s.claim(d)
	if d.Volume == nil {
		n.Parts = []Node{claim}
		return n
	}
	v := d.Volume
	volume := Node{
		Kind: "DataVolume", Name: v.Name, Phase: string(v.Status.Phase), Progress: progress(string(v.Status.Progress)),
		Since: v.CreationTimestamp.Time, Parts: []Node{claim},
	}
	for _, c := range v.Status.Conditions {
		if c.Type == cdiv1.DataVolumeReady {
			// The heartbeat is the time of the volume's last message.
			volume.Since, volume.Why = c.LastHeartbeatTime.Time, c.Message
		}
	}
	if v.Status.Phase == cdiv1.Succeeded { // nothing is waited for
		volume.Why, volume.Progress, volume.Since = "", "", time.Time{}
	}
	n.Parts = []Node{volume}
	return n
}

func progress(text string) string {
	if text == "N/A" {
		return ""
	}
	return text
}

func (s *Seen) claim(d Disk) Node {
	n := Node{Kind: "claim", Name: d.Claim}
	if d.PVC == nil {
		n.Phase = "not there"
		return n
	}
	n.Phase, n.Where = string(d.PVC.Status.Phase), Place(d.PV)
	if d.PVC.Status.Phase != corev1.ClaimBound {
		n.Since, n.Why = d.PVC.CreationTimestamp.Time, d.PVC.Annotations[annMessage]
		if state := d.PVC.Annotations[annState]; state != "" {
			n.Phase += "  " + state
		}
		n.Progress = progress(d.PVC.Annotations[annProgress])
	}
	for i := range s.Pods {
		p := &s.Pods[i]
		if uses(p, d) && p.Labels[render.LabelDomain] != s.Machine.Name {
			n.Parts = append(n.Parts, podNode(p))
		}
	}
	return n
}

// uses reports whether the pod works on the claim, or on the claim that a populator fills to become this one.
func uses(p *corev1.Pod, d Disk) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
		c := v.PersistentVolumeClaim
		return c != nil && (c.ClaimName == d.Claim || c.ClaimName == "prime-"+string(d.PVC.UID))
	})
}

// Place returns the node a local volume is on; empty if it is on none in particular.
func Place(pv *corev1.PersistentVolume) string {
	if pv == nil || pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return ""
	}
	var nodes []string
	for _, term := range pv.Spec.NodeAffinity.Required.NodeSelectorTerms {
		for _, r := range slices.Concat(term.MatchExpressions, term.MatchFields) {
			nodes = append(nodes, r.Values...)
		}
	}
	return strings.Join(nodes, ", ")
}

// kindOf is our word for what a pod is there for.
func kindOf(p *corev1.Pod) string {
	_, consumer := p.Annotations[render.AnnConsumer]
	switch {
	case consumer:
		return "consumer"
	case p.Labels[render.LabelMachine] == "virt-launcher":
		return "launcher"
	case p.Labels[render.LabelMachine] == render.HotplugDisk:
		return "holder"
	case p.Labels[render.LabelApp] == render.App:
		return "worker"
	}
	return "pod"
}

func podNode(p *corev1.Pod) Node {
	n := Node{Kind: kindOf(p), Name: p.Name, Phase: string(p.Status.Phase), Where: p.Spec.NodeName, Since: p.CreationTimestamp.Time}
	if p.DeletionTimestamp != nil {
		n.Phase = "Terminating"
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			n.Why, n.Since = c.Message, c.LastTransitionTime.Time
		}
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if w := c.State.Waiting; w != nil && w.Message != "" {
			n.Why = w.Reason + ": " + w.Message
		}
	}
	return n
}
