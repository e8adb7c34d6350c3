//go:build apiserver || e2e

// Package browser drives a real browser, Debian's chromium, as a person would: it opens pages, reads them, clicks and types. It
// does not know the pages.
package browser

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Browser is one tab of a browser with a profile of its own.
type Browser struct {
	T   *testing.T
	ctx context.Context // chromedp keeps the browser in it

	// Problems are the complaints of pages: errors of scripts, and requests that the policy forbade.
	Problems []string
	// Requests are the hosts that requests were sent to.
	Requests map[string]bool
}

// patience is how long a page may take for something on a busy machine.
const patience = 60 * time.Second

// New starts a browser that ends with the test. Questions that a page asks are answered with yes.
func New(t *testing.T) *Browser {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("%v: install it with `make packages`", err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.NoSandbox, // tests run as root, and the pages are ours
		chromedp.WindowSize(1280, 900), chromedp.Flag("ignore-certificate-errors", true), chromedp.Flag("disable-gpu", true),
		chromedp.WSURLReadTimeout(patience))
	start, cancelStart := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(start)
	t.Cleanup(func() { cancel(); cancelStart() })
	b := &Browser{T: t, ctx: ctx, Requests: map[string]bool{}}
	b.attend()
	return b
}

// attend begins to listen to the tab.
func (b *Browser) attend() {
	b.T.Helper()
	chromedp.ListenTarget(b.ctx, b.listen)
	b.Do(network.Enable(), log.Enable())
}

// NewTab opens another tab of the same browser, with what it remembers, and closes the one that was there.
func (b *Browser) NewTab() {
	b.T.Helper()
	closed := b.ctx
	next, cancel := chromedp.NewContext(closed)
	b.T.Cleanup(cancel)
	b.ctx = next
	b.attend()
	if err := chromedp.Run(closed, page.Close()); err != nil {
		b.T.Fatalf("close the tab: %v", err)
	}
}

func (b *Browser) listen(event any) {
	switch e := event.(type) {
	case *cdpruntime.EventExceptionThrown:
		b.Problems = append(b.Problems, e.ExceptionDetails.Error())
	case *log.EventEntryAdded:
		if e.Entry.Source == log.SourceSecurity {
			b.Problems = append(b.Problems, e.Entry.Text)
		}
	case *network.EventRequestWillBeSent:
		b.Requests[e.Request.URL] = true
	case *page.EventJavascriptDialogOpening:
		go func() { _ = chromedp.Run(b.ctx, page.HandleJavaScriptDialog(true)) }()
	}
}

// Do carries out actions of chromedp.
func (b *Browser) Do(actions ...chromedp.Action) {
	b.T.Helper()
	if err := b.try(actions...); err != nil {
		b.T.Fatalf("the browser: %v\n%s", err, b.state())
	}
}

func (b *Browser) try(actions ...chromedp.Action) error {
	// The first Run starts the browser, and its context is the browser's: a timeout of its own would end it.
	done := make(chan error, 1)
	go func() { done <- chromedp.Run(b.ctx, actions...) }()
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		return fmt.Errorf("nothing came of it in %s", patience)
	}
}

// Open opens a page.
func (b *Browser) Open(address string) {
	b.T.Helper()
	b.Do(chromedp.Navigate(address))
}

// Text returns what a person reads in the first element that a selector finds; empty if there is none.
func (b *Browser) Text(selector string) string {
	b.T.Helper()
	var text string
	b.Do(chromedp.Evaluate(fmt.Sprintf(`document.querySelector(%q)?.innerText ?? ""`, selector), &text))
	return text
}

// Has waits until an element has a text, and says how long that took.
func (b *Browser) Has(selector, text string, within time.Duration) time.Duration {
	b.T.Helper()
	return b.Until(fmt.Sprintf(`(document.querySelector(%q)?.innerText ?? "").includes(%q)`, selector, text), within)
}

// Until waits until an expression of the page is true, and says how long that took. It may be about what is not there yet.
func (b *Browser) Until(expression string, within time.Duration) time.Duration {
	b.T.Helper()
	began := time.Now()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var is bool
		err := b.try(chromedp.Evaluate("Boolean("+expression+")", &is))
		if err != nil && !early(err) {
			b.T.Fatalf("the browser: %v\n%s", err, b.state())
		}
		if is {
			return time.Since(began)
		}
		if time.Since(began) > within {
			b.T.Fatalf("not after %s: %s (%v)\n%s", within, expression, err, b.state())
		}
		<-tick.C
	}
}

// early reports whether an answer is missing because the page is just being left for another one, or is not complete yet. The
// protocol has one code for all ways in which a page is left ("navigated or closed", "cannot find default execution context").
func early(err error) bool {
	var said *cdproto.Error
	var thrown *cdpruntime.ExceptionDetails
	return errors.As(err, &said) && said.Code == -32000 || errors.As(err, &thrown)
}

// painted is whether a page can be seen: a browser drops what is typed and clicked before that.
const painted = `document.readyState === "complete" && performance.getEntriesByType("paint").length > 0`

// Click clicks on the first element that a selector finds, as soon as it is there. A page that changes at that moment moves the element from
// under the pointer; a person clicks again then, and so does this.
func (b *Browser) Click(selector string) {
	b.T.Helper()
	ready := fmt.Sprintf(`%s && document.querySelector(%[2]q) && (() => {
		window.clickedOn = "";
		document.addEventListener("click", (e) => { if (e.target.closest(%[2]q)) window.clickedOn = %[2]q; }, {capture: true});
		return true;
	})()`, painted, selector)
	for range 5 {
		b.Until(ready, patience)
		b.Do(chromedp.Click(selector, chromedp.ByQuery))
		// Undefined: the click has led to another page.
		if b.soon(fmt.Sprintf(`window.clickedOn === undefined || window.clickedOn === %q`, selector)) {
			return
		}
	}
	b.T.Fatalf("no click arrives at %s\n%s", selector, b.state())
}

// soon reports whether an expression of the page becomes true within moments.
func (b *Browser) soon(expression string) bool {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range 50 {
		var is bool
		err := b.try(chromedp.Evaluate("Boolean("+expression+")", &is))
		if is || err != nil && early(err) {
			return true
		}
		<-tick.C
	}
	return false
}

// Fill types a value into a field, instead of what it had.
func (b *Browser) Fill(selector, value string) {
	b.T.Helper()
	b.Until(fmt.Sprintf(`%s && (e => { e?.focus(); e?.select?.(); return e && e === document.activeElement; })(document.querySelector(%q))`,
		painted, selector), patience)
	b.Do(input.InsertText(value))
}

// Choose chooses an option of a select.
func (b *Browser) Choose(selector, value string) {
	b.T.Helper()
	b.Until(fmt.Sprintf(`(e => { if (!e) return false; e.value = %q; e.dispatchEvent(new Event("input", {bubbles: true})); return e.value === %q; })(document.querySelector(%q))`,
		value, value, selector), patience)
}

// Drop drops a file on the first element that a selector finds.
func (b *Browser) Drop(selector, path string) {
	b.T.Helper()
	var at struct{ X, Y float64 }
	b.Do(chromedp.Evaluate(fmt.Sprintf(`(r => ({X: r.x + r.width / 2, Y: r.y + r.height / 2}))(document.querySelector(%q).getBoundingClientRect())`, selector), &at))
	data := &input.DragData{Items: []*input.DragDataItem{}, Files: []string{path}, DragOperationsMask: 1}
	for _, kind := range []input.DispatchDragEventType{input.DragEnter, input.DragOver, input.Drop} {
		b.Do(input.DispatchDragEvent(kind, at.X, at.Y, data))
	}
}

// Size makes the window as large as a person's, and chooses the scheme of colours.
func (b *Browser) Size(width, height int64, dark bool) {
	b.T.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	b.Do(emulation.SetDeviceMetricsOverride(width, height, 1, width < 500),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}))
}

// Shot writes a picture of the page into the folder that the environment variable BERTH_PICTURES names, if it names one. A person looks
// at a picture before it is committed.
func (b *Browser) Shot(name string) {
	b.T.Helper()
	dir := os.Getenv("BERTH_PICTURES")
	if dir == "" {
		return
	}
	var picture []byte
	b.Do(chromedp.CaptureScreenshot(&picture))
	if err := os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o644); err != nil {
		b.T.Fatal(err)
	}
}

// Calm fails the test if a page reported an error, or sent a request to another host.
func (b *Browser) Calm(host string) {
	b.T.Helper()
	for _, p := range b.Problems {
		b.T.Errorf("the page complained: %s", p)
	}
	for address := range b.Requests {
		if !strings.Contains(address, "://"+host+"/") && !strings.HasPrefix(address, "data:") && !strings.HasPrefix(address, "about:") {
			b.T.Errorf("the page asked for %s", address)
		}
	}
}

// state describes the page after a failure.
func (b *Browser) state() string {
	ctx, cancel := context.WithTimeout(b.ctx, 5*time.Second)
	defer cancel()
	var address, text string
	_ = chromedp.Run(ctx, chromedp.Location(&address), chromedp.Evaluate(`document.body.innerText.slice(0, 4000)`, &text)) // it may be gone
	return fmt.Sprintf("at %s:\n%s\n%s", address, text, strings.Join(b.Problems, "\n"))
}
