package launcherexec

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/remotecommand"
)

// TestOpen: the launcher's first line is its answer, and the rest is the guest's.
func TestOpen(t *testing.T) {
	ended := make(chan struct{})
	c, said, err := open(t.Context(), "tcp 7", func(_ context.Context, s remotecommand.StreamOptions) error {
		defer close(ended)
		in := bufio.NewReader(s.Stdin)
		line, err := in.ReadString('\n')
		if err != nil || line != "tcp 7\n" {
			return fmt.Errorf("asked for %q: %w", line, err)
		}
		_, _ = io.WriteString(s.Stdout, "{}\nhello ")
		_, err = io.Copy(s.Stdout, in)
		return err
	})
	if err != nil || said.Refused != "" {
		t.Fatalf("%v, %v", said, err)
	}
	if _, err := io.WriteString(c, "you"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 9)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "hello you" {
		t.Errorf("got %q (%v)", got, err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	<-ended
}

// TestOpenRefused: a refusal is no connection, and a launcher that says nonsense, too much or nothing is an error.
func TestOpenRefused(t *testing.T) {
	for name, row := range map[string]struct {
		says string
		ends error
		want string
	}{
		"refused":  {says: `{"refused":"no such port"}` + "\n", want: "no such port"},
		"nonsense": {says: "hello\n", want: "invalid character"},
		"too much": {says: strings.Repeat("x", 1<<20), want: "buffer full"},
		"nothing":  {want: "EOF"},
		"dead":     {ends: errors.New("the pod is gone"), want: "the pod is gone"},
	} {
		_, said, err := open(t.Context(), "", func(_ context.Context, s remotecommand.StreamOptions) error {
			if _, err := io.WriteString(s.Stdout, row.says); err != nil {
				return err
			}
			return row.ends
		})
		if got := fmt.Sprint(said.Refused, err); !strings.Contains(got, row.want) || err == nil && said.Refused == "" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestPolicyListsVerbs: the admission policy allows our accounts exactly the verbs that they run.
func TestPolicyListsVerbs(t *testing.T) {
	text, err := os.ReadFile("../../config/rbac/policies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	flat := strings.Join(strings.Fields(string(text)), " ")
	for account, verbs := range map[string][]string{"berth-controller": ControllerVerbs, "berth-api": APIVerbs} {
		want := fmt.Sprintf("'system:serviceaccount:berth:%s' ? ['%s']", account, strings.Join(verbs, "', '"))
		if !strings.Contains(flat, want) {
			t.Errorf("the policy does not say %s", want)
		}
		if slices.Contains(verbs, "run") {
			t.Errorf("%s may start guests", account)
		}
	}
}
