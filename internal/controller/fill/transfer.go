package fill

import (
	"fmt"
	"net"
	"strconv"

	"github.com/berth-vm/berth/internal/decide/clone"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/task"
)

// transfer is the worker that fills the claim.
func (e *Engine) transfer(s *Seen) (render.Worker, error) {
	from, source, err := s.workerSource()
	if err != nil {
		return render.Worker{}, err
	}
	disk := render.Disk{Claim: s.claim.Name, Block: s.block()}
	w := render.Worker{
		Name: render.WorkerName(s.role(), s.claim.Name), Namespace: s.claim.Namespace, Role: s.role(),
		Owner: s.order.Owner, ClaimUID: s.claim.UID, VolumeUID: s.order.UID,
		Attempt: s.restarts(), Command: "run", Target: &disk, Source: source, Secrets: from.Secrets,
		Annotations: s.passedOn(), Priority: s.order.Spec.PriorityClassName,
		ServiceAccount: s.order.Spec.ServiceAccountName, Settings: PodSettings(e.image, s.settings),
		Task: task.Task{
			Version: task.Version, Volume: s.order.Namespace + "/" + s.order.Name, Claim: string(s.claim.UID),
			Source: from.Source, Checksum: from.Checksum, Raw: s.order.Annotations[AnnContents] == contentsRaw,
			Target: task.Target{
				Path: disk.TargetPath(s.content()), Content: s.content(), Size: s.diskSize(), Preallocate: s.preallocate(),
			},
		},
	}
	if from.Source.Upload != nil {
		w.Listen = render.UploadPort
		w.Secrets = append(w.Secrets, render.Secret{Name: w.Name, Dir: render.TLSDir})
	}
	if from.Source.Peer != nil {
		w.Peer = &render.Peer{Name: peerName, IP: s.origin.server.Status.PodIP}
	}
	if from.Source == (task.Source{}) {
		w.Command = bindOnly
	}
	if from.Source == (task.Source{}) || source != nil { // it may be the first consumer of what must be beside the source
		w.Settings.Affinity = within(w.Settings.Affinity, s.origin.home)
	}
	return w, nil
}

// bindOnly makes a worker that moves nothing: it is there to be scheduled with a claim that its driver fills, beside the
// source, and makes the disk as large as the claim is for.
const bindOnly = "bind"

// workerSource is where the worker reads from, and the claim it needs for that besides its target.
func (s *Seen) workerSource() (render.Origin, *render.Disk, error) {
	if s.source == nil || s.source.PVC == nil && s.source.Snapshot == nil {
		from, err := render.FromSource(s.source, Network(s.settings))
		return from, nil, err
	}
	switch s.origin.strategy {
	case clone.Copy:
		disk := render.Disk{Claim: s.origin.claim.Name, Block: isBlock(s.origin.claim.Spec.VolumeMode)}
		local := &task.Local{Path: disk.SourcePath(s.content()), Raw: true}
		return render.Origin{Source: task.Source{Local: local}}, &disk, nil
	case clone.Stream:
		peer := &task.Peer{URL: "https://" + net.JoinHostPort(peerName, strconv.Itoa(servePort)), TLSDir: render.TLSDir}
		return render.Origin{
			Source: task.Source{Peer: peer}, Secrets: []render.Secret{{Name: s.clientKeys(), Dir: render.TLSDir}},
		}, nil, nil
	case clone.CSIClone, clone.Snapshot, clone.Impossible:
		return render.Origin{}, nil, nil // the driver fills the claim
	}
	return render.Origin{}, nil, fmt.Errorf("no worker clones by %q", s.origin.strategy)
}
