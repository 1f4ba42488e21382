package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/net/netutil"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cli/asking"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/incluster"
	"github.com/theseus-cni/theseus/internal/cli/version"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/run/web"
)

// page serves the live page until ctx ends. It is a process of its own: what people look at takes no memory from a run,
// and a fault in the page meets none of the controller's permissions.
func page(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("web", flag.ContinueOnError)
	var reach connection
	var listen list
	reach.register(flags)
	flags.Var(&listen, "listen", "`HOST:PORT` that serves the page, repeatable; without --tls, a loopback address")
	certificate := flags.String("tls", "", "`folder` with tls.crt and tls.key, as in a Secret of the type "+
		"kubernetes.io/tls; they are read again when they change")
	dir := flags.String("state-dir", "/var/lib/theseus", "`folder` for the API servers' addresses")
	if err := parse(flags, args); err != nil {
		return err
	}
	if len(listen) == 0 {
		return usage{errors.New("--listen is missing")}
	}
	client, servers, err := reach.client(known(*dir))
	if err != nil {
		return err
	}
	if servers != nil {
		defer learn(ctx, client.Typed, servers, *dir)()
	}
	gate, err := web.NewCluster(client.Config, version.Read().Version, &web.Feeds{Start: starter(client, *dir)})
	if err != nil {
		return err
	}
	gate.Acts, gate.Missing = acts, func(user string) string {
		return "An administrator grants it: theseus rights look --for " + incluster.Subject(user) +
			" | kubectl apply -f -"
	}
	server := web.Serve(gate, exit.HintOf)
	server.CheckEvery = checkEvery
	return servePage(ctx, listen, *certificate, server)
}

// checkEvery is web.Server.CheckEvery, for tests.
var checkEvery time.Duration

const (
	// mostConnections bounds the connections of one address, and mostStreams the requests under way on one of HTTP/2:
	// anyone may open some.
	mostConnections = 256
	mostStreams     = 32
)

// starter reads migrations with the permissions of this process.
func starter(client *kube.Client, dir string) func(context.Context, string) (*web.Feed, func(context.Context), error) {
	return func(ctx context.Context, migration string) (*web.Feed, func(context.Context), error) {
		p, m, err := journal.Load(ctx, client.Dynamic, migration)
		if err != nil {
			return nil, nil, err
		}
		source := &web.Source{Client: client, Feed: web.NewFeed(p), Name: migration, UID: m.UID,
			Dir: filepath.Join(dir, "none"), Waits: asking.Waits}
		return source.Feed, source.Run, nil
	}
}

// acts are the actions for which a person has the rights. The API server decides again when they are carried out.
func acts(client *kube.Client, migration string, may func(...web.Right) (bool, error)) (web.Actions, error) {
	only := []string{}
	for _, one := range []struct {
		actions []string
		rights  []web.Right
	}{
		{[]string{asking.ActPause, asking.ActResume, asking.ActRollback},
			[]web.Right{{Verb: "patch", Group: v1alpha1.Group, Resource: "migrations", Name: migration}}},
		{[]string{asking.ActApprove},
			[]web.Right{{Verb: "approve", Group: v1alpha1.Group, Resource: "migrations", Name: migration},
				{Verb: "create", Group: v1alpha1.Group, Resource: "approvals"}}},
	} {
		ok, err := may(one.rights...)
		if err != nil {
			return nil, err
		}
		if ok {
			only = append(only, one.actions...)
		}
	}
	return &asking.Actions{Client: client, Name: migration, Only: only}, nil
}

// servePage serves a handler, and /healthz, at all addresses until ctx ends.
func servePage(ctx context.Context, addresses []string, certificate string, handler http.Handler) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.Handle("/", handler)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: 64 << 10, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: mostStreams},
		BaseContext: func(net.Listener) context.Context { return ctx }}
	open := func(address string) (net.Listener, error) {
		listener, err := web.Listen(address)
		if errors.Is(err, web.ErrNotLoopback) {
			return nil, usage{fmt.Errorf("--listen %s: %w. Add --tls", address, err)}
		}
		return listener, err
	}
	if certificate != "" {
		pair := &keyPair{dir: certificate}
		if _, err := pair.get(nil); err != nil {
			return err
		}
		server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: pair.get}
		open = func(address string) (net.Listener, error) { return net.Listen("tcp", address) }
	}
	ended := make(chan error, len(addresses))
	defer server.Close() //nolint:errcheck // it ends either way
	for _, address := range addresses {
		listener, err := open(address)
		if err != nil {
			return err
		}
		at := listener.Addr()
		listener = netutil.LimitListener(listener, mostConnections)
		go func() { // ends with server.Close
			if certificate != "" {
				ended <- server.ServeTLS(listener, "", "")
			} else {
				ended <- server.Serve(listener)
			}
		}()
		fmt.Fprintf(os.Stdout, "the page is served at %s\n", at)
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil
	}
}

// keyPair is a certificate in a folder, read again when its file has changed: certificates are renewed.
type keyPair struct {
	dir  string
	lock sync.Mutex
	pair *tls.Certificate
	at   time.Time
}

func (k *keyPair) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	k.lock.Lock()
	defer k.lock.Unlock()
	crt := filepath.Join(k.dir, "tls.crt")
	info, err := os.Stat(crt)
	if err == nil && k.pair != nil && info.ModTime().Equal(k.at) {
		return k.pair, nil
	}
	pair, err := tls.LoadX509KeyPair(crt, filepath.Join(k.dir, "tls.key"))
	if err != nil {
		if k.pair != nil { // half written: the earlier one serves until it can be read
			return k.pair, nil
		}
		return nil, fmt.Errorf("the certificate of the page: %w", err)
	}
	k.pair, k.at = &pair, info.ModTime()
	return k.pair, nil
}
