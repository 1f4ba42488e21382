package notify

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/safeio/infile"
)

const (
	// callTimeout bounds one attempt.
	callTimeout = 10 * time.Second
	// mostBytes bounds the files with the address and the secret.
	mostBytes = 4096
	// leastSecret is the shortest secret, in bytes (Standard Webhooks asks for 24 to 64).
	leastSecret = 24
)

// Event is a CloudEvent. Its ID is the same whenever it is sent.
type Event struct {
	ID      string    `json:"id"`
	Source  string    `json:"source"`
	Type    string    `json:"type"`
	Subject string    `json:"subject,omitempty"`
	Time    time.Time `json:"time"`
	Data    any       `json:"data"`
}

// What the address and the secret of notifications are for, in help texts.
const (
	Gets = "gets a CloudEvent by HTTP POST when the run begins, pauses, fails or ends, and after each wave"
	// GuardGets is the same of a guard, which has no waves.
	GuardGets = "gets a CloudEvent by HTTP POST when the guard begins, pauses, fails or ends, after the baseline, " +
		"and after the watching"
	Signs = "the secret that signs these events (HMAC-SHA256, Standard Webhooks)"
)

// Target is where events go.
type Target struct {
	url    *url.URL
	secret []byte // nil: nothing is signed
	client *http.Client
}

// New reads the address: a URL, or @FILE, a file that has it. secretFile has the secret that events are signed with; ""
// means none.
func New(address, secretFile string) (*Target, error) {
	if file, is := strings.CutPrefix(address, "@"); is {
		text, err := infile.ReadUpTo(file, mostBytes)
		if err != nil {
			return nil, engine.WithHint(fmt.Errorf("the file with the URL for notifications: %w", err),
				"write the URL into that file, or give it as --notify URL")
		}
		address = strings.TrimSpace(string(text))
	}
	to, err := url.Parse(address)
	// the error would show the URL, which may have a secret
	if err != nil || to.Scheme != "https" && to.Scheme != "http" || to.Hostname() == "" || to.Fragment != "" {
		return nil, engine.WithHint(errors.New("the URL for notifications is not valid"),
			"for example --notify https://events.example.com/theseus, or --notify @FILE with a file that has the URL")
	}
	t := &Target{url: to, client: &http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment,
			TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}, TLSHandshakeTimeout: callTimeout},
		// what is signed goes to the target alone
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if secretFile != "" {
		if t.secret, err = readSecret(secretFile); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// readSecret reads a secret: "whsec_" and base64, as Standard Webhooks writes it, or any other text.
func readSecret(file string) ([]byte, error) {
	text, err := infile.ReadUpTo(file, mostBytes)
	if err != nil {
		return nil, engine.WithHint(fmt.Errorf("the secret for notifications: %w", err),
			"make one: openssl rand -hex 32 > FILE")
	}
	secret := bytes.TrimSpace(text)
	if coded, is := bytes.CutPrefix(secret, []byte("whsec_")); is {
		if secret, err = base64.StdEncoding.DecodeString(string(coded)); err != nil {
			return nil, engine.WithHint(fmt.Errorf("the secret in %s begins with whsec_, and the rest is not base64",
				file), "copy the whole secret, or make one: openssl rand -hex 32 > FILE")
		}
	}
	if len(secret) < leastSecret {
		return nil, engine.WithHint(fmt.Errorf("the secret in %s has %d bytes, and at least %d are needed",
			file, len(secret), leastSecret), "make one: openssl rand -hex 32 > FILE")
	}
	return secret, nil
}

// String is the scheme and the host of the target: credentials may be in every other part of its URL.
func (t *Target) String() string { return t.url.Scheme + "://" + t.url.Host }

// Exposed says what others can read on the way to the target; "" if nothing.
func (t *Target) Exposed() string {
	host := t.url.Hostname()
	address := net.ParseIP(host)
	switch {
	case t.url.Scheme != "http", host == "localhost", address != nil && address.IsLoopback():
		return ""
	case t.url.User != nil:
		return t.String() + " gets notifications without encryption: anyone on the network path can read them, " +
			"and the " +
			"password in the URL"
	}
	return t.String() + " gets notifications without encryption: anyone on the network path can read them"
}

// finalError is an answer that another attempt does not change.
type finalError struct{ error }

// retried are the statuses that may go away. Those from 500 on may, too.
var retried = []int{http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests}

// deliver sends an event once.
func (t *Target) deliver(ctx context.Context, e Event) error {
	body, err := json.Marshal(struct {
		SpecVersion     string `json:"specversion"`
		DataContentType string `json:"datacontenttype"`
		Event
	}{"1.0", "application/json", e})
	if err != nil {
		return finalError{err}
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url.String(), bytes.NewReader(body))
	if err != nil {
		return finalError{errors.New("the URL cannot be used")}
	}
	request.Header.Set("Content-Type", "application/cloudevents+json; charset=utf-8")
	request.Header.Set("User-Agent", "theseus")
	if t.secret != nil {
		t.sign(request.Header, e.ID, time.Now(), body)
	}
	answer, err := t.client.Do(request)
	if err != nil {
		if wrapped, is := errors.AsType[*url.Error](err); is { // its text has the URL
			err = wrapped.Err
		}
		return err
	}
	defer answer.Body.Close()
	switch {
	case answer.StatusCode/100 == 2:
		return nil
	case answer.StatusCode >= 500 || slices.Contains(retried, answer.StatusCode):
		return fmt.Errorf("it answered %d", answer.StatusCode)
	case answer.StatusCode/100 == 3:
		return finalError{fmt.Errorf("it answered %d, and redirects are not followed", answer.StatusCode)}
	}
	return finalError{fmt.Errorf("it answered %d", answer.StatusCode)}
}

// sign adds the headers of Standard Webhooks.
func (t *Target) sign(header http.Header, id string, at time.Time, body []byte) {
	stamp := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, t.secret)
	mac.Write([]byte(id + "." + stamp + "."))
	mac.Write(body)
	header.Set("Webhook-Id", id)
	header.Set("Webhook-Timestamp", stamp)
	header.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}
