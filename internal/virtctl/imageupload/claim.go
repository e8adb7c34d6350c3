package imageupload

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/virtctl/createpvc"
	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// ensureClaim ensures that there is a claim that takes an upload; claim is nil if there is none of that name.
func (u *upload) ensureClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	switch {
	case claim == nil && u.NoCreate:
		return u.notFound()
	case claim == nil:
		return u.createClaim(ctx)
	case claim.Annotations[annPopulate] != "":
		return u.taken("PVC %s already successfully populated", u.Name)
	}
	return u.checkClaim(ctx, claim)
}

// createClaim makes a claim that a VolumeUploadSource of the same name fills.
func (u *upload) createClaim(ctx context.Context) error {
	size, err := u.size()
	if err != nil {
		return err
	}
	o := createpvc.Options{
		Name: u.Name, Size: size.String(), SizeIsDisk: u.Size == "", Class: u.Class, VolumeMode: u.VolumeMode, Labels: u.Labels,
		Source: createpvc.Source{Kind: cdiv1.VolumeUploadSourceRef, Name: u.Name},
	}
	if u.AccessMode != "" {
		o.AccessModes = []string{u.AccessMode}
	}
	claim, _, err := createpvc.Complete(ctx, u.cluster, o)
	if apierrors.IsForbidden(err) {
		return advise(err, "image-upload dv %s needs no such right: what has to be looked up the cluster itself looks up then.", u.Name)
	}
	if err != nil {
		return err
	}
	_, err = kube.UploadSources.Create(ctx, u.cluster, &cdiv1.VolumeUploadSource{
		ObjectMeta: u.meta(), Spec: cdiv1.VolumeUploadSourceSpec{ContentType: u.content()},
	})
	if err != nil && !apierrors.IsAlreadyExists(err) { // it is left of an earlier try
		return u.made(err)
	}
	_, err = u.cluster.Core.CoreV1().PersistentVolumeClaims(u.cluster.Namespace).Create(ctx, claim, metav1.CreateOptions{})
	if err != nil {
		return u.made(fmt.Errorf("create PVC %s: %w", u.Name, err))
	}
	u.say("PersistentVolumeClaim %s/%s created", u.cluster.Namespace, u.Name)
	return nil
}

// checkClaim accepts a claim if a component of the cluster will take an upload for it.
func (u *upload) checkClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	content, err := u.contentOf(ctx, claim)
	if err != nil {
		return err
	}
	if (content == string(cdiv1.DataVolumeArchive)) != (u.Archive != "") {
		return u.wrongContent()
	}
	u.say("Using existing PVC %s/%s", u.cluster.Namespace, u.Name)
	return nil
}

// contentOf returns the kind of content that the claim expects; an error if it takes no upload.
func (u *upload) contentOf(ctx context.Context, claim *corev1.PersistentVolumeClaim) (string, error) {
	if ref := claim.Spec.DataSourceRef; ref != nil && ref.Kind == cdiv1.VolumeUploadSourceRef {
		source, err := kube.UploadSources.Get(ctx, u.cluster, ref.Name)
		if err != nil || source == nil {
			return "", err // one that is made later says what it is for later
		}
		return string(source.Spec.ContentType), nil
	}
	if owner := metav1.GetControllerOf(claim); owner != nil && owner.Kind == "DataVolume" {
		volume, err := kube.DataVolumes.Get(ctx, u.cluster, owner.Name)
		if err == nil && volume != nil && volume.Spec.Source != nil && volume.Spec.Source.Upload != nil {
			return string(volume.Spec.ContentType), nil
		}
		if err != nil {
			return "", err
		}
	}
	if _, asked := claim.Annotations[annUpload]; asked {
		return claim.Annotations[annContent], nil
	}
	return "", &unavailable{claim: u.Name}
}

// unavailable is the error if no component of the cluster would take the upload.
type unavailable struct{ claim string }

// Error returns the line clients know.
func (e *unavailable) Error() string { return fmt.Sprintf("PVC %s not available for upload", e.claim) }

// Advice returns which claims are.
func (e *unavailable) Advice() string {
	return "An upload fills a claim whose dataSourceRef is a VolumeUploadSource, or that of a DataVolume with an upload source.\n" +
		"Leave --no-create out and give the volume a new name to have one made."
}
