package imageupload

import (
	"context"
	"errors"
	"fmt"

	"github.com/berth-vm/berth/internal/upload/client"
	"github.com/berth-vm/berth/internal/virtctl/bar"
)

// send sends the file and shows how far it is.
func (u *upload) send(ctx context.Context, to door) error {
	u.say("Uploading data to %s\n", to.url)
	line := bar.Bytes(u.out)
	err := client.Send(ctx, u.path(), client.Options{
		URL: to.url, Token: u.token, CA: []byte(to.ca), Insecure: u.Insecure, Retries: u.Retries, Progress: line.Set,
	})
	line.End()
	u.say("")
	var refused *client.Refused
	switch {
	case err == nil, ctx.Err() != nil, errors.As(err, &refused):
		return err
	}
	return fmt.Errorf("error uploading image after %d retries: %w", u.Retries, err)
}
