package image

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Pull makes the node whose containerd listens at that socket fetch the images, so that pods start at once and even if they
// must not pull. Images that lost their name to a newer one are removed.
func Pull(ctx context.Context, socket string, names []string) error {
	if err := awaitSocket(ctx, socket); err != nil {
		return err
	}
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connect to containerd: %w", err)
	}
	defer conn.Close()
	if err := awaitRuntime(ctx, cri.NewRuntimeServiceClient(conn)); err != nil {
		return err
	}
	client := cri.NewImageServiceClient(conn)
	for _, name := range names {
		if _, err := client.PullImage(ctx, &cri.PullImageRequest{Image: &cri.ImageSpec{Image: name}}, grpc.WaitForReady(true)); err != nil {
			return fmt.Errorf("pull %s: %w", name, err)
		}
	}
	return removeNameless(ctx, client, names)
}

const again = 100 * time.Millisecond

// awaitSocket waits until containerd has made its socket.
func awaitSocket(ctx context.Context, socket string) error {
	return retry(ctx, func() error { _, err := os.Stat(socket); return err })
}

// awaitRuntime waits until containerd answers: it accepts calls a moment before it can serve them.
func awaitRuntime(ctx context.Context, client cri.RuntimeServiceClient) error {
	return retry(ctx, func() error {
		_, err := client.Status(ctx, &cri.StatusRequest{}, grpc.WaitForReady(true))
		return err
	})
}

func retry(ctx context.Context, try func() error) error {
	tick := time.NewTicker(again)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for containerd: %w", err)
		}
	}
}

func removeNameless(ctx context.Context, client cri.ImageServiceClient, names []string) error {
	list, err := client.ListImages(ctx, &cri.ListImagesRequest{})
	if err != nil {
		return fmt.Errorf("list images: %w", err)
	}
	for _, img := range list.Images {
		if len(img.RepoTags) > 0 || !slices.ContainsFunc(img.RepoDigests, func(d string) bool { return sameRepository(d, names) }) {
			continue
		}
		if _, err := client.RemoveImage(ctx, &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: img.Id}}); err != nil {
			return fmt.Errorf("remove replaced image %s: %w", img.Id, err)
		}
	}
	return nil
}

// sameRepository reports whether the digest reference "repository@sha256:..." is of the repository of one of the names.
func sameRepository(digest string, names []string) bool {
	repository, _, _ := strings.Cut(digest, "@")
	return slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, repository+":") })
}
