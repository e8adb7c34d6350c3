package imageupload

import (
	"context"
	"fmt"
	"time"

	"github.com/berth-vm/berth/internal/upload/client"
	"github.com/berth-vm/berth/internal/virtctl/bar"
)

// send sends the file and shows the progress.
func (u *upload) send(ctx context.Context, to proxyAddress) error {
	u.say("Uploading data to %s\n", to.url)
	line := bar.Bytes(u.out)
	options := client.Options{
		URL: to.url, Token: u.token, CA: []byte(to.ca), Insecure: u.Insecure, Retries: u.Retries, Progress: line.Set,
		Retrying: func(err error, pause time.Duration) {
			line.Say(fmt.Sprintf("%v; trying again in %s", err, pause))
		},
	}
	var err error
	if u.From != nil {
		err = client.SendFrom(ctx, *u.From, options)
	} else {
		err = client.Send(ctx, u.path(), options)
	}
	line.End()
	u.say("")
	return u.sent(err, to)
}
