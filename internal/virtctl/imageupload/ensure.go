package imageupload

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// ensure ensures that there is a volume that takes an upload.
func (u *upload) ensure(ctx context.Context) error {
	claim, err := u.claim(ctx)
	if err != nil {
		return err
	}
	if claim != nil && claim.Annotations[annPhase] == string(corev1.PodSucceeded) {
		return u.taken("PVC %s already successfully imported/cloned/updated", u.Name)
	}
	if u.Claim {
		return u.ensureClaim(ctx, claim)
	}
	volume, err := kube.DataVolumes.Get(ctx, u.cluster, u.Name)
	switch {
	case err != nil:
		return err
	case volume != nil:
		return u.checkVolume(volume)
	case claim != nil:
		return advise(fmt.Errorf("No DataVolume is associated with the existing PVC %s/%s", u.cluster.Namespace, u.Name), //nolint:staticcheck // the text clients know
			"Choose another name, or upload into the claim itself if it is for that: image-upload pvc %s", u.Name)
	case u.NoCreate:
		return u.notFound()
	}
	return u.createVolume(ctx)
}

func (u *upload) notFound() error {
	return advise(fmt.Errorf("PVC %s/%s not found", u.cluster.Namespace, u.Name),
		"Leave --no-create out to have it made, or name another namespace with --namespace.")
}

func (u *upload) createVolume(ctx context.Context) error {
	spec := cdiv1.DataVolumeSpec{
		Source: &cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}}, ContentType: u.content(),
		Storage: &cdiv1.StorageSpec{},
	}
	s := spec.Storage
	var err error
	if s.Resources, err = u.room(); err != nil {
		return err
	}
	s.AccessModes, _ = accessModes(u.AccessMode) // checked before
	s.VolumeMode, _ = volumeMode(u.VolumeMode)
	if u.Class != "" {
		s.StorageClassName = &u.Class
	}
	volume := &cdiv1.DataVolume{ObjectMeta: u.meta(), Spec: spec}
	if _, err := kube.DataVolumes.Create(ctx, u.cluster, volume); err != nil {
		return u.made(err)
	}
	u.say("DataVolume %s/%s created", u.cluster.Namespace, u.Name)
	return nil
}

func (u *upload) meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: u.Name, Namespace: u.cluster.Namespace, Labels: u.Labels}
}

func (u *upload) room() (corev1.VolumeResourceRequirements, error) {
	size, err := u.size()
	return corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: size}}, err
}

func (u *upload) content() cdiv1.DataVolumeContentType {
	if u.Archive != "" {
		return cdiv1.DataVolumeArchive
	}
	return cdiv1.DataVolumeKubeVirt
}

// checkVolume accepts an existing DataVolume for an upload, so that a repeated command continues with the volume that the first
// one made.
func (u *upload) checkVolume(v *cdiv1.DataVolume) error {
	if v.Spec.Source == nil || v.Spec.Source.Upload == nil {
		return advise(fmt.Errorf("PVC %s not available for upload", u.Name),
			"DataVolume %s exists and gets its data from elsewhere. Choose another name.", u.Name)
	}
	if v.Status.Phase == cdiv1.Succeeded {
		return u.taken("PVC %s already successfully populated", u.Name)
	}
	if (v.Spec.ContentType == cdiv1.DataVolumeArchive) != (u.Archive != "") {
		return u.wrongContent()
	}
	if u.NoCreate {
		u.say("Using existing PVC %s/%s", u.cluster.Namespace, u.Name)
		return nil
	}
	u.say("DataVolume %s/%s created", u.cluster.Namespace, u.Name)
	return nil
}

func (u *upload) wrongContent() error {
	if u.Archive != "" {
		return fmt.Errorf("PVC %s doesn't have archive contentType annotation", u.Name)
	}
	return fmt.Errorf("PVC %s is for an archive; upload one with --archive-path", u.Name)
}

// message returns what a volume says about itself.
func message(v *cdiv1.DataVolume, kind cdiv1.DataVolumeConditionType) (reason, text string) {
	for _, c := range v.Status.Conditions {
		if c.Type == kind {
			return c.Reason, c.Message
		}
	}
	return "", ""
}

// errAlreadyThere is the error for a volume that was filled in the meantime.
var errAlreadyThere = errors.New("somebody else has filled it meanwhile")
