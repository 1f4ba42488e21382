// Package kubeapi is the little of a Kubernetes client that the lab itself needs: is the API server
// ready, create an object, and watch objects until a condition holds. Everything else goes through kubectl.
package kubeapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/pki"
)

// Client talks to one API server.
type Client struct {
	server string
	http   *http.Client
}

// New returns a client for the server (https URL) that trusts ca and authenticates as admin.
func New(server string, ca []byte, admin pki.Pair) (*Client, error) {
	cert, err := tls.X509KeyPair(admin.Cert, admin.Key)
	if err != nil {
		return nil, fmt.Errorf("client certificate: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	t := &http.Transport{TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: pool}}
	return &Client{server: server, http: &http.Client{Transport: t}}, nil
}

// Close ends idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// retry is how long to wait before asking a server again that did not answer.
const retry = 50 * time.Millisecond

// Ready waits until the API server says that it is ready.
func (c *Client) Ready(ctx context.Context) error {
	var last error
	for {
		resp, err := c.do(ctx, http.MethodGet, "/readyz", nil)
		if err == nil {
			resp.Body.Close()
			return nil
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-time.After(retry):
		case <-ctx.Done():
			return fmt.Errorf("the API server is not ready: %w", errors.Join(ctx.Err(), last))
		}
	}
}

// Create posts an object to a collection such as /api/v1/nodes. It is no error if the object exists.
func (c *Client) Create(ctx context.Context, collection string, object any) error {
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	resp, err := c.do(ctx, http.MethodPost, collection, body)
	var status *StatusError
	if errors.As(err, &status) && status.Code == http.StatusConflict {
		return nil
	}
	if err != nil {
		return fmt.Errorf("create in %s: %w", collection, err)
	}
	resp.Body.Close()
	return nil
}

// StatusError is an answer of the API server other than success.
type StatusError struct {
	Code int
	Text string
}

func (e *StatusError) Error() string { return fmt.Sprintf("status %d: %s", e.Code, e.Text) }

func (c *Client) do(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.server+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 300 {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 2000))
		resp.Body.Close()
		return nil, &StatusError{Code: resp.StatusCode, Text: string(text)}
	}
	return resp, nil
}

// Object is the part of an object that conditions look at.
type Object struct {
	Metadata struct {
		Name            string
		ResourceVersion string
		Generation      int64
	}
	Status Status
}

// Status has the status of nodes, deployments and daemon sets.
type Status struct {
	Conditions []struct{ Type, Status, Reason, Message string }

	ObservedGeneration     int64
	Replicas               int
	UpdatedReplicas        int
	AvailableReplicas      int
	DesiredNumberScheduled int
	NumberAvailable        int
	UpdatedNumberScheduled int
}

// True reports whether the condition is true.
func (o Object) True(condition string) bool {
	for _, c := range o.Status.Conditions {
		if c.Type == condition {
			return c.Status == "True"
		}
	}
	return false
}

// List returns the names of a collection's objects.
func (c *Client) List(ctx context.Context, collection string) ([]string, error) {
	list, err := c.list(ctx, collection)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", collection, err)
	}
	var names []string
	for _, o := range list.Items {
		names = append(names, o.Metadata.Name)
	}
	return names, nil
}

type list struct {
	Metadata struct{ ResourceVersion string }
	Items    []Object
}

func (c *Client) list(ctx context.Context, collection string) (list, error) {
	var l list
	resp, err := c.do(ctx, http.MethodGet, collection, nil)
	if err != nil {
		return l, err
	}
	defer resp.Body.Close()
	err = json.NewDecoder(resp.Body).Decode(&l)
	return l, err
}

// Watch calls seen with every object of the collection, then with each changed one, until seen
// reports done. A watch that breaks is restarted with a list, so an object may be seen twice.
func (c *Client) Watch(ctx context.Context, collection string, seen func(Object) (done bool)) error {
	for {
		done, err := c.watchOnce(ctx, collection, seen)
		if done {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("watch %s: %w", collection, ctx.Err())
		}
		var status *StatusError
		if errors.As(err, &status) && status.Code < 500 && status.Code != http.StatusGone {
			return fmt.Errorf("watch %s: %w", collection, err)
		}
		select {
		case <-time.After(retry):
		case <-ctx.Done():
		}
	}
}

func (c *Client) watchOnce(ctx context.Context, collection string, seen func(Object) bool) (bool, error) {
	list, err := c.list(ctx, collection)
	if err != nil {
		return false, err
	}
	for _, o := range list.Items {
		if seen(o) {
			return true, nil
		}
	}
	resp, err := c.do(ctx, http.MethodGet, collection+"?watch=true&resourceVersion="+list.Metadata.ResourceVersion, nil)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	events := json.NewDecoder(resp.Body)
	for {
		var e struct {
			Type   string
			Object Object
		}
		if err := events.Decode(&e); err != nil {
			return false, err
		}
		if e.Type == "ERROR" {
			return false, errors.New("the watch expired")
		}
		if e.Type != "DELETED" && seen(e.Object) {
			return true, nil
		}
	}
}
