package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/proof/loss"
)

// Local is a measurement from this machine.
type Local struct {
	Paths []v1alpha1.Path
	// For is how long probes are sent; the context's end ends them early, which is no error.
	For     time.Duration
	Timeout time.Duration
	// Name is how the source is called in the document.
	Name string
}

// Document is a measurement as a file: a ProbeReport with its paths. A ProbeReport from
// the cluster can be read as one without paths.
type Document struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ObjectMeta          `json:"metadata"`
	Spec            DocumentSpec               `json:"spec,omitzero"`
	Status          v1alpha1.ProbeReportStatus `json:"status"`
}

// DocumentSpec is the paths measured.
type DocumentSpec struct {
	Paths []v1alpha1.Path `json:"paths,omitempty"`
}

// ParseTarget makes a path of a URL: udp://host:port, tcp://host:port (a kept connection),
// tcp-new://host:port (a connection per probe) or dns://server[:port]/name. It accepts ?size=BYTES, ?interval=20ms
// and ?denied=true; interval is the default interval.
func ParseTarget(target string, interval time.Duration) (v1alpha1.Path, error) {
	path := v1alpha1.Path{ID: target, Class: "outside", Size: 64, Source: v1alpha1.Endpoint{Network: "host"}}
	parsed, err := url.Parse(target)
	if err != nil {
		return path, fmt.Errorf("target %q: %w", target, err)
	}
	path.Protocol = v1alpha1.Protocol(parsed.Scheme)
	path.Target.Address = parsed.Host
	switch path.Protocol {
	case v1alpha1.UDP, v1alpha1.TCP, v1alpha1.TCPNew:
		if parsed.Port() == "" || parsed.Hostname() == "" {
			return path, fmt.Errorf("target %q: host and port are needed", target)
		}
		if n, err := strconv.Atoi(parsed.Port()); err != nil || n < 1 || n > 65535 {
			return path, fmt.Errorf("target %q: port %s is not between 1 and 65535", target, parsed.Port())
		}
	case v1alpha1.DNS:
		if path.Query = trimSlash(parsed.Path); path.Query == "" || parsed.Hostname() == "" {
			return path, fmt.Errorf("target %q: server and name are needed, as in dns://192.0.2.1/example.org", target)
		}
		if parsed.Port() == "" {
			path.Target.Address = net.JoinHostPort(parsed.Hostname(), "53")
		}
	default:
		return path, fmt.Errorf("target %q: the protocol must be udp, tcp, tcp-new or dns", target)
	}
	if err := options(&path, parsed.Query(), interval); err != nil {
		return path, fmt.Errorf("target %q: %w", target, err)
	}
	return path, nil
}

// options reads the part after the question mark.
func options(path *v1alpha1.Path, values url.Values, interval time.Duration) error {
	for key, value := range values {
		var err error
		switch key {
		case "size":
			path.Size, err = strconv.Atoi(value[0])
		case "interval":
			interval, err = time.ParseDuration(value[0])
		case "denied":
			path.Denied, err = strconv.ParseBool(value[0])
		default:
			err = fmt.Errorf("unknown option %q", key)
		}
		if err != nil {
			return err
		}
	}
	if path.Size < minSize || path.Size > maxSize {
		return fmt.Errorf("size %d is not between %d and %d bytes", path.Size, minSize, maxSize)
	}
	if interval < time.Millisecond {
		return fmt.Errorf("interval %v is below 1ms", interval)
	}
	path.IntervalMillis = int(interval.Milliseconds())
	return nil
}

func trimSlash(path string) string {
	if path != "" && path[0] == '/' {
		return path[1:]
	}
	return path
}

// RunLocal measures paths from this machine and returns the results, probes in flight at the end
// included. Host names are looked up once, before the start.
func RunLocal(ctx context.Context, local Local) (Document, error) {
	if len(local.Paths) == 0 {
		return Document{}, errors.New("no target to measure")
	}
	if local.Timeout <= 0 {
		local.Timeout = loss.DefaultTimeout
	}
	resolved, err := resolve(ctx, local.Paths)
	if err != nil {
		return Document{}, err
	}
	runner := NewRunner(Options{Timeout: local.Timeout})
	defer runner.Close()
	runner.SetPaths(resolved)
	pause(ctx, local.For)
	runner.SetPaths(nil)
	within, cancel := runner.within(time.Now())
	<-within.Done()
	cancel()
	pause(context.WithoutCancel(ctx), 10*time.Millisecond)
	return Document{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: "ProbeReport"},
		Metadata: metav1.ObjectMeta{Name: local.Name},
		Spec:     DocumentSpec{Paths: local.Paths},
		Status:   v1alpha1.ProbeReportStatus{Generation: 1, Seq: 1, At: time.Now(), Paths: runner.Results()},
	}, nil
}

// resolve replaces host names with addresses.
func resolve(ctx context.Context, paths []v1alpha1.Path) ([]v1alpha1.Path, error) {
	resolved := make([]v1alpha1.Path, len(paths))
	for i, path := range paths {
		host, port, err := net.SplitHostPort(path.Target.Address)
		if err != nil {
			return nil, fmt.Errorf("target %s: %w", path.ID, err)
		}
		addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		if err != nil {
			return nil, fmt.Errorf("target %s: %w", path.ID, err)
		}
		path.Target.Address = net.JoinHostPort(addresses[0].Unmap().String(), port)
		resolved[i] = path
	}
	return resolved, nil
}
