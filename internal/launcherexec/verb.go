package launcherexec

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/berth-vm/berth/internal/launcherapi"
)

// within is how long a launcher may take to answer a verb: longer than the limits of its guest's agent together.
const within = 45 * time.Second

// Ask has a launcher carry out a verb, and returns its answer.
func (p *Pods) Ask(ctx context.Context, launcher *corev1.Pod, verb string) (launcherapi.Said, error) {
	return p.ask(ctx, launcher, verb, remotecommand.StreamOptions{})
}

func (p *Pods) ask(ctx context.Context, launcher *corev1.Pod, verb string, streams remotecommand.StreamOptions) (launcherapi.Said, error) {
	var said launcherapi.Said
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ctx, stop := context.WithTimeout(ctx, within)
	defer stop()
	out, complaint := &Answer{Most: launcherapi.MostSaid, Over: cancel}, &Answer{Over: cancel}
	streams.Stdout, streams.Stderr = out, complaint
	err := p.Run(ctx, launcher, verb, streams)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if err != nil {
		return said, fmt.Errorf("%s in pod %s: %w: %.1000s", verb, launcher.Name, err, complaint)
	}
	if err := json.Unmarshal([]byte(out.String()), &said); err != nil {
		return said, fmt.Errorf("read the launcher's answer to %s: %w", verb, err)
	}
	return said, nil
}

// AskWith is Ask for a verb that is followed by words, which are one line.
func (p *Pods) AskWith(ctx context.Context, launcher *corev1.Pod, verb, words string) (launcherapi.Said, error) {
	return p.ask(ctx, launcher, verb, remotecommand.StreamOptions{Stdin: strings.NewReader(words + "\n")})
}

// Open has a launcher connect to its guest; what names the part of it, if the verb needs one. If the launcher refuses, the Said
// has the reason and there is no connection. The caller closes the connection.
func (p *Pods) Open(ctx context.Context, launcher *corev1.Pod, verb, what string) (io.ReadWriteCloser, launcherapi.Said, error) {
	return open(ctx, what, func(ctx context.Context, s remotecommand.StreamOptions) error { return p.Run(ctx, launcher, verb, s) })
}

func open(ctx context.Context, what string, run func(context.Context, remotecommand.StreamOptions) error) (io.ReadWriteCloser, launcherapi.Said, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	in, toGuest := io.Pipe()
	fromGuest, out := io.Pipe()
	complaint := &Answer{Over: cancel}
	go func() {
		err := run(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: out, Stderr: complaint})
		if err == nil {
			err = io.EOF
		}
		_, _ = in.CloseWithError(err), out.CloseWithError(err)
	}()
	c := &connection{Reader: bufio.NewReaderSize(fromGuest, 64<<10), to: toGuest, from: fromGuest, cancel: cancel}
	late := time.AfterFunc(within, func() { cancel(fmt.Errorf("no answer within %s", within)) })
	defer late.Stop()
	said, err := c.begin(what)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if err != nil || said.Refused != "" {
		_ = c.Close()
	}
	if err != nil {
		return nil, said, fmt.Errorf("connect to the guest: %w: %.1000s", err, complaint)
	}
	return c, said, nil
}

// connection is a program's input and output in a pod.
type connection struct {
	*bufio.Reader
	to     *io.PipeWriter
	from   *io.PipeReader
	cancel context.CancelCauseFunc
}

// begin returns what to connect to and reads the launcher's first line.
func (c *connection) begin(what string) (launcherapi.Said, error) {
	var said launcherapi.Said
	if what != "" {
		if _, err := io.WriteString(c.to, what+"\n"); err != nil {
			return said, err
		}
	}
	line, err := c.ReadSlice('\n')
	if err != nil {
		return said, err
	}
	return said, json.Unmarshal(line, &said)
}

func (c *connection) Write(p []byte) (int, error) { return c.to.Write(p) }

// Close ends the program.
func (c *connection) Close() error {
	err := errors.Join(c.to.Close(), c.from.Close())
	c.cancel(nil)
	return err
}
