package kube

import (
	"context"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/theseus-cni/theseus/internal/cluster/outage"
)

// The limits of every client: a change reads and writes much more than client-go's defaults (5 and 10
// requests a second) expect.
const (
	queriesPerSecond = 100
	queryBurst       = 200
	// callTimeout is the timeout of one request, or of one page of a list. It is a deadline of contexts, because
	// a timeout of the HTTP client would end watches.
	callTimeout = 30 * time.Second
)

// Client talks to one cluster. It is safe for concurrent use.
type Client struct {
	Config  *rest.Config
	Typed   kubernetes.Interface
	Dynamic dynamic.Interface
	// Discovery caches its results; Mapper uses it. Mapper.Reset clears both caches, which is needed after a
	// CustomResourceDefinition was added.
	Discovery discovery.CachedDiscoveryInterface
	Mapper    meta.ResettableRESTMapper
}

// New makes a client from a copy of a configuration. The version is that of Theseus, for the user agent. New sends no
// request.
func New(config *rest.Config, version string) (*Client, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = queriesPerSecond, queryBurst
	config.RateLimiter = nil
	config.UserAgent = "theseus/" + version
	config.WarningHandler = rest.NoWarnings{}
	return connect(config)
}

// Fenced returns a client of the same cluster that calls check before each request that may change something, and sends
// the request only if check returns nil.
func (c *Client) Fenced(check func(context.Context) error) (*Client, error) {
	return c.Through(func(next http.RoundTripper) http.RoundTripper { return fence{next, check} })
}

// Through returns a client of the same cluster whose requests go through what wrap returns.
func (c *Client) Through(wrap func(next http.RoundTripper) http.RoundTripper) (*Client, error) {
	config := rest.CopyConfig(c.Config)
	config.Wrap(wrap)
	return connect(config)
}

type fence struct {
	next  http.RoundTripper
	check func(context.Context) error
}

// RoundTrip implements http.RoundTripper.
func (f fence) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		if err := f.check(r.Context()); err != nil {
			if r.Body != nil {
				_ = r.Body.Close() // as the interface requires
			}
			return nil, err
		}
	}
	return f.next.RoundTrip(r)
}

func connect(config *rest.Config) (*Client, error) {
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("kubernetes client: %w", err)
	}
	dynamicClient, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("dynamic client: %w", err)
	}
	cached := memory.NewMemCacheClient(typed.Discovery())
	return &Client{
		Config:    config,
		Typed:     typed,
		Dynamic:   dynamicClient,
		Discovery: cached,
		Mapper:    restmapper.NewDeferredDiscoveryRESTMapper(cached),
	}, nil
}

// Call returns a context with the timeout of one request.
func (c *Client) Call(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, callTimeout)
}

// ClusterUID reads the identity of the cluster: the UID of Namespace kube-system, which plans have, too.
func (c *Client) ClusterUID(ctx context.Context) (string, error) {
	ctx, cancel := c.Call(ctx)
	defer cancel()
	namespace, err := c.Typed.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return string(namespace.UID), nil
}

// UnreachableError says that the API server did not answer, or rejected the credentials.
type UnreachableError struct {
	Host string
	Err  error
}

func (e *UnreachableError) Error() string {
	if apierrors.IsUnauthorized(e.Err) {
		return fmt.Sprintf("the API server %s does not accept these credentials: %v", e.Host, e.Err)
	}
	return fmt.Sprintf("the API server %s cannot be reached: %v", e.Host, e.Err)
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// Hint returns what to check.
func (e *UnreachableError) Hint() string {
	if apierrors.IsUnauthorized(e.Err) {
		return "check the user of the current context: kubectl config view --minify"
	}
	if outage.Untrusted(e.Err) {
		return outage.UntrustedHint
	}
	return "check the context and the network: kubectl cluster-info"
}

// serverVersion requests the version, which needs no permission, to find out whether the server is reachable.
func (c *Client) serverVersion(ctx context.Context) (*version.Info, error) {
	ctx, cancel := c.Call(ctx)
	defer cancel()
	answer := make(chan error, 1)
	var info *version.Info
	go func() { // ends with the discovery client's own timeout (32 s) at the latest
		var err error
		info, err = c.Discovery.ServerVersion()
		answer <- err
	}()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case err := <-answer:
		if err != nil {
			return nil, &UnreachableError{Host: c.Config.Host, Err: err}
		}
		return info, nil
	}
}
