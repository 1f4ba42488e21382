// Package control is how the command line talks to the outer process of a lab: JSON over HTTP on a
// unix socket in the lab's state directory.
package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/theseus-cni/theseus/lab/internal/fabric"
)

// Node is the state of one node.
type Node struct {
	Name    string
	IP      string
	Running bool
	Pid     int // of process 1, as the outer process sees it; 0 when the power is off
	Link    fabric.Faults
}

// Link is a change of one node's link.
type Link struct {
	Node      int
	Partition *bool         // nil: as it is
	Loss      *float64      // nil: as it is
	Drops     []fabric.Drop // added to the existing ones
	Clear     bool          // first clear loss and drops
}

// ErrRefused says that the lab understood a request but cannot do it.
var ErrRefused = errors.New("the lab refused")

// Client talks to one lab.
type Client struct{ http *http.Client }

// Dial returns a client for the socket. No connection is made before the first call.
func Dial(socket string) *Client {
	var d net.Dialer
	return &Client{http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return d.DialContext(ctx, "unix", socket)
		},
	}}}
}

// Nodes lists the nodes.
func (c *Client) Nodes(ctx context.Context) ([]Node, error) {
	var out []Node
	err := c.call(ctx, "/nodes", struct{}{}, &out)
	return out, err
}

// Kill cuts the power of node n.
func (c *Client) Kill(ctx context.Context, n int) error { return c.call(ctx, "/kill", n, nil) }

// Start restores the power of node n.
func (c *Client) Start(ctx context.Context, n int) error { return c.call(ctx, "/start", n, nil) }

// Add makes node n and powers it on; it is no error if the node exists.
func (c *Client) Add(ctx context.Context, n int) error { return c.call(ctx, "/add", n, nil) }

// Remove stops node n and removes its disk; it is no error if the node does not exist.
func (c *Client) Remove(ctx context.Context, n int) error { return c.call(ctx, "/remove", n, nil) }

// SetLink changes the faults of a link and returns its current ones.
func (c *Client) SetLink(ctx context.Context, l Link) (fabric.Faults, error) {
	var out fabric.Faults
	err := c.call(ctx, "/link", l, &out)
	return out, err
}

func (c *Client) call(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://lab"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("talk to the lab: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("%w: %s", ErrRefused, strings.TrimSpace(string(text)))
	}
	if out == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(out)
}

// Lab is the interface of the outer process.
type Lab interface {
	Nodes() []Node
	Kill(n int) error
	Start(n int) error
	Add(n int) error
	Remove(n int) error
	SetLink(Link) (fabric.Faults, error)
}

// Handler serves the lab to clients.
func Handler(lab Lab) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/nodes", answer(func(struct{}) (any, error) { return lab.Nodes(), nil }))
	mux.HandleFunc("/kill", answer(func(n int) (any, error) { return nil, lab.Kill(n) }))
	mux.HandleFunc("/start", answer(func(n int) (any, error) { return nil, lab.Start(n) }))
	mux.HandleFunc("/add", answer(func(n int) (any, error) { return nil, lab.Add(n) }))
	mux.HandleFunc("/remove", answer(func(n int) (any, error) { return nil, lab.Remove(n) }))
	mux.HandleFunc("/link", answer(func(l Link) (any, error) { return lab.SetLink(l) }))
	return mux
}

func answer[T any](f func(T) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in T
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		out, err := f(in)
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		_ = json.NewEncoder(w).Encode(out)
	}
}
