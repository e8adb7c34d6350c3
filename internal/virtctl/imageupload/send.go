package imageupload

import (
	"context"
	"fmt"
	"time"

	"github.com/berth-vm/berth/internal/upload/client"
	"github.com/berth-vm/berth/internal/virtctl/bar"
)

// send sends the file and shows how far it is.
func (u *upload) send(ctx context.Context, to door) error {
	u.say("Uploading data to %s\n", to.url)
	line := bar.Bytes(u.out)
	err := client.Send(ctx, u.path(), client.Options{
		URL: to.url, Token: u.token, CA: []byte(to.ca), Insecure: u.Insecure, Retries: u.Retries, Progress: line.Set,
		Retrying: func(err error, pause time.Duration) {
			line.Say(fmt.Sprintf("%v; trying again in %s", err, pause))
		},
	})
	line.End()
	u.say("")
	return u.sent(err, to)
}
