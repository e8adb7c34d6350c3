// Package vnc brings the screen of a machine to a port of the user's own machine and starts a viewer for it. It moves bytes; the
// protocol is the viewer's and QEMU's business.
package vnc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"time"

	"github.com/berth-vm/berth/internal/virtctl/kube"
	"github.com/berth-vm/berth/internal/virtctl/machine"
	"github.com/berth-vm/berth/internal/virtctl/stream"
)

// Options are the flags.
type Options struct {
	ProxyOnly bool
	Address   string
	Port      int
}

// viewers are the programs that are tried, with the arguments for the address of the screen.
var viewers = []struct {
	program string
	args    func(address string) []string
}{
	{"remote-viewer", func(at string) []string { return []string{"vnc://" + at} }},
	{"vncviewer", func(at string) []string { return []string{at} }},
}

// waits is how long a viewer may take to connect.
const waits = time.Minute

// Run shows the screen of a machine that runs until the viewer has gone, the screen has, or ctx ends. One viewer is let in.
func Run(ctx context.Context, c *kube.Client, name string, o Options, out io.Writer) error {
	screen, err := stream.Open(ctx, c.Config, machine.Path(c, "virtualmachineinstances", name, "vnc"))
	if err != nil {
		return fmt.Errorf("Can't access VMI %s: %w", name, err) //nolint:staticcheck // the text clients know
	}
	defer func() { _ = screen.Close() }()
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", net.JoinHostPort(o.Address, strconv.Itoa(o.Port)))
	if err != nil {
		return fmt.Errorf("open the local port: %w", err)
	}
	defer func() { _ = l.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	if o.ProxyOnly {
		if err := json.NewEncoder(out).Encode(map[string]int{"port": l.Addr().(*net.TCPAddr).Port}); err != nil {
			return err
		}
	} else {
		viewer, err := start(ctx, l.Addr().String())
		if err != nil {
			return err
		}
		defer viewer()
		_ = l.(*net.TCPListener).SetDeadline(time.Now().Add(waits))
	}
	here, err := l.Accept()
	if err != nil {
		return errors.Join(context.Cause(ctx), fmt.Errorf("wait for the viewer: %w", err))
	}
	_ = l.Close()
	return stream.Join(ctx, screen, here)
}

// Screenshot returns a picture of the screen of a machine that runs, as PNG.
func Screenshot(ctx context.Context, c *kube.Client, name string, move bool) ([]byte, error) {
	picture, err := c.Core.CoreV1().RESTClient().Get().AbsPath(machine.Path(c, "virtualmachineinstances", name, "vnc"), "screenshot").
		Param("moveCursor", strconv.FormatBool(move)).SetHeader("Accept", "image/png, */*").Do(ctx).Raw()
	if err != nil {
		return nil, fmt.Errorf("Can't access VMI %s: %w", name, err) //nolint:staticcheck // the text clients know
	}
	return picture, nil
}

// start starts the first viewer that is installed; what is returned waits for its end.
func start(ctx context.Context, at string) (func(), error) {
	for _, v := range viewers {
		path, err := exec.LookPath(v.program)
		if err != nil {
			continue
		}
		cmd := exec.CommandContext(ctx, path, v.args(at)...)
		if err := cmd.Start(); err != nil {
			return nil, fmt.Errorf("start %s: %w", v.program, err)
		}
		return func() { _ = cmd.Wait() }, nil
	}
	return nil, fmt.Errorf("could not find %s or %s binary in $PATH; with --proxy-only any viewer can be used", viewers[0].program, viewers[1].program)
}
