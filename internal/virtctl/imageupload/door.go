package imageupload

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	uploadv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/upload/v1beta1"

	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// proxyAddress is the address that uploads are sent to.
type proxyAddress struct {
	url string
	ca  string // PEM; empty: whatever the system trusts
}

// door finds the upload proxy: where the user says, else where the cluster says.
func (u *upload) door(ctx context.Context) (proxyAddress, error) {
	d := proxyAddress{url: u.ProxyURL}
	config, err := kube.Configurations.Get(ctx, u.cluster, "config")
	if err == nil && config != nil {
		if config.Status.UploadProxyCA != nil {
			d.ca = *config.Status.UploadProxyCA
		}
		if d.url == "" && config.Status.UploadProxyURL != nil {
			d.url = *config.Status.UploadProxyURL
		}
	}
	if d.url == "" {
		none := errors.New("uploadproxy URL not found")
		if err != nil {
			none = fmt.Errorf("%w: %w", none, err)
		}
		return d, advise(none, "Name the upload proxy with --uploadproxy-url=https://..., "+
			"or have an administrator set spec.config.uploadProxyURLOverride of the CDI resource.")
	}
	if !strings.Contains(d.url, "://") {
		d.url = "https://" + d.url
	}
	d.url = strings.TrimSuffix(d.url, "/")
	return d, nil
}

func (u *upload) token(ctx context.Context) (string, error) { return Token(ctx, u.cluster, u.Name) }

// Token asks for the right to upload into a claim, which is short-lived: the sender asks again when it has run out.
func Token(ctx context.Context, c *kube.Client, claim string) (string, error) {
	made, err := kube.UploadTokens.Create(ctx, c, &uploadv1.UploadTokenRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "token-for-virtctl", Namespace: c.Namespace},
		Spec:       uploadv1.UploadTokenRequestSpec{PvcName: claim},
	})
	if err != nil {
		return "", fmt.Errorf("%w: %w", errToken, err)
	}
	return made.Status.Token, nil
}

// processed waits until what was sent has become a disk.
func (u *upload) processed(ctx context.Context) error {
	u.say("Uploading data completed successfully, waiting for processing to complete, you can hit ctrl-c without interrupting the progress")
	limited, cancel := context.WithTimeoutCause(ctx, u.Wait, errTooLong)
	defer cancel()
	err := wait.PollUntilContextCancel(limited, interval, true, func(ctx context.Context) (bool, error) {
		claim, err := u.claim(ctx)
		if err != nil || claim == nil {
			return false, errors.Join(err, gone(claim, u.Name))
		}
		if claim.Annotations[annPhase] == string(corev1.PodSucceeded) {
			return true, nil
		}
		if u.Claim {
			return false, brokenClaim(claim)
		}
		return false, u.brokenVolume(ctx)
	})
	if err != nil && errors.Is(context.Cause(limited), errTooLong) {
		return errors.New("Timed out waiting for post upload processing to complete, please check upload pod status for progress") //nolint:staticcheck // the text clients know
	}
	if err != nil {
		return err
	}
	u.say("Processing completed successfully")
	return nil
}

func gone(claim *corev1.PersistentVolumeClaim, name string) error {
	if claim != nil {
		return nil
	}
	return fmt.Errorf("PVC %s was deleted meanwhile", name)
}

// brokenVolume returns what a DataVolume says that took the bytes and could not make a disk of them.
func (u *upload) brokenVolume(ctx context.Context) error {
	volume, err := kube.DataVolumes.Get(ctx, u.cluster, u.Name)
	if err != nil || volume == nil || volume.Status.Phase != cdiv1.Failed {
		return err
	}
	_, why := message(volume, cdiv1.DataVolumeReady)
	return fmt.Errorf("Provisioning failed: %s", why) //nolint:staticcheck // the text clients know
}
