package web

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/interrupt"
	"github.com/theseus-cni/theseus/internal/run/web"
	"github.com/theseus-cni/theseus/internal/run/web/webtest"
)

// TestOpen: wrong addresses end with a hint.
func TestOpen(t *testing.T) {
	for listen, want := range map[string]string{
		"0.0.0.0:0": "error: --listen 0.0.0.0:0: the page is served on a loopback address only: it shows the cluster " +
			"to everyone who has its address, without encryption\nhint: --listen 127.0.0.1:0; ",
		"8080": "error: --listen: \"8080\" is no address: ",
	} {
		_, err := open(listen)
		var out bytes.Buffer
		if code := exit.Code(&out, err); code != exit.Usage || !strings.HasPrefix(out.String(), want) ||
			!strings.Contains(out.String(), "\nhint: ") {
			t.Errorf("%s: exit %d: %s", listen, code, out.String())
		}
	}
	taken, err := open("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close() //nolint:errcheck
	var out bytes.Buffer
	if _, err := open(taken.Addr().String()); exit.Code(&out, err) != exit.Failed ||
		!strings.Contains(out.String(), "hint: choose another port") {
		t.Errorf("a port that is taken: %s", out.String())
	}
}

// TestShow: the command prints the address, serves the page there, and ends with an interrupt.
func TestShow(t *testing.T) {
	in, out := io.Pipe()
	said := &bytes.Buffer{}
	a := &app.App{Streams: app.Streams{In: &bytes.Buffer{}, Out: out, Err: said},
		Signals: &interrupt.Signals{Err: said}, Output: "json"}
	ctx, done := a.Signals.Catch(t.Context())
	defer done()
	listener, err := open("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	page := web.NewServer(web.NewFeed(webtest.New(t, 3).Plan), listener.Addr().String(), nil, exit.HintOf)
	ended, read := make(chan error, 1), false
	go func() {
		ended <- show(ctx, a, listener, page, func(ctx context.Context) { <-ctx.Done(); read = true })
	}()
	line := make([]byte, 500)
	n, err := in.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	url := regexp.MustCompile(`^\{"url":"(http://127\.0\.0\.1:\d+/)#[A-Z2-7]{26}"\}\n$`).FindSubmatch(line[:n])
	if url == nil {
		t.Fatalf("%s", line[:n])
	}
	answer, err := http.Get(string(url[1]))
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Errorf("%v %v", answer, err)
	}
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var words bytes.Buffer
	if code := exit.Code(&words, <-ended); code != exit.Interrupted ||
		!strings.Contains(words.String(), "the migration itself was not interrupted") || !read {
		t.Errorf("exit %d, read %t: %s", code, read, words.String())
	}
}
