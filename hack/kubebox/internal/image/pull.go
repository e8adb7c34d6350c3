package image

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Pull makes the node whose containerd listens at that socket fetch the images, so that pods start at once and even if they
// must not pull. Images that lost their name to a newer one are removed.
func Pull(ctx context.Context, socket string, names []string) error {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connect to containerd: %w", err)
	}
	defer conn.Close()
	client := cri.NewImageServiceClient(conn)
	for _, name := range names {
		if _, err := client.PullImage(ctx, &cri.PullImageRequest{Image: &cri.ImageSpec{Image: name}}, grpc.WaitForReady(true)); err != nil {
			return fmt.Errorf("pull %s: %w", name, err)
		}
	}
	return removeNameless(ctx, client, names)
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

// sameRepository is true if the digest reference "repository@sha256:..." is of the repository of one of the names.
func sameRepository(digest string, names []string) bool {
	repository, _, _ := strings.Cut(digest, "@")
	return slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, repository+":") })
}
