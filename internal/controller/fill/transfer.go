package fill

import (
	"github.com/berth-vm/berth/internal/controller/nodeselect"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/task"
)

// transfer returns the worker that fills the claim.
func (e *Engine) transfer(s *Seen) (render.Worker, error) {
	from := s.clone.Reads()
	switch b := s.clone.Backup(); {
	case b != nil:
		if err := s.readsBackup(&from, b); err != nil {
			return render.Worker{}, err
		}
	case !s.clone.IsClone():
		var err error
		if from.Origin, err = render.FromSource(s.source, s.settings.Network()); err != nil {
			return render.Worker{}, err
		}
	}
	disk := render.Disk{Claim: s.claim.Name, Block: s.block()}
	content := s.clone.Content(s.content())
	w := render.Worker{
		Name: render.WorkerName(s.role(), s.claim.Name), Namespace: s.claim.Namespace, Role: s.role(),
		Owner: s.order.Owner, ClaimUID: s.claim.UID, VolumeUID: s.order.UID,
		Attempt: s.restarts(), Command: "run", Target: &disk, Source: from.Disk, Peer: from.Peer, Secrets: from.Secrets,
		Annotations: s.passedOn(), Priority: s.order.Spec.PriorityClassName,
		ServiceAccount: s.order.Spec.ServiceAccountName, Settings: s.settings.Pod(e.image),
	}
	if from.Source.Upload != nil {
		w.Listen = render.UploadPort
		w.Secrets = append(w.Secrets, render.Secret{Name: w.Name, Dir: render.TLSDir})
	}
	if from.Source == (task.Source{}) {
		w.Command = bindOnly
	}
	w.Settings.Affinity = nodeselect.Within(w.Settings.Affinity, from.Home)
	t := task.Task{
		Version: task.Version, Volume: s.order.Namespace + "/" + s.order.Name, Claim: string(s.claim.UID),
		Source: from.Source, Checksum: from.Checksum, Raw: s.order.Annotations[names.Contents] == names.ContentsRaw,
		Early: earlyUse{s}.bootsEarly() && earlyUse{s}.late() == "",
		Target: task.Target{
			Path: disk.TargetPath(content), Content: content, Size: s.diskSize(), Preallocate: s.preallocate(),
		},
	}
	err := stages{s}.aim(&w, &t)
	w.Task = t
	return w, err
}

// bindOnly makes a worker that copies nothing: it exists to be scheduled with a claim that its driver fills, on the source's node,
// and extends the disk to the requested size.
const bindOnly = "bind"
