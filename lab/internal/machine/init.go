package machine

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/supervise"
)

// Init is the second stage of process 1: the machine's init system. It does not return.
func Init() error {
	raw, err := os.ReadFile(configFile)
	if err != nil {
		return err
	}
	var c Config
	if err := json.Unmarshal(raw, &c); err != nil {
		return fmt.Errorf("read %s: %w", configFile, err)
	}
	log, err := os.OpenFile(filepath.Join(logDir, "init.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	ctx := context.Background()
	s := supervise.New(logDir, runDir)
	var all sync.WaitGroup
	keep := func(argv ...string) {
		all.Go(func() { s.Keep(ctx, supervise.Program{Name: argv[0], Argv: argv}, log) })
	}
	keep("containerd", "--config", containerdConfig)
	if err := waitFor(ctx, func() bool { return listens(Socket) }); err != nil {
		return err
	}
	if c.First {
		if err := importImages(ctx, s, c, log); err != nil {
			fmt.Fprintf(log, "%v\n", err)
		}
		if err := waitForNode(ctx, c); err != nil {
			return err
		}
	}
	keep("kubelet", "--config", kubeletConfig, "--kubeconfig", kubeletKubeconfig,
		"--hostname-override", c.Name, "--node-ip", c.Addr.Addr().String(), "--v=2")
	if !c.WithoutProxy {
		keep("kube-proxy", "--config", proxyConfig, "--hostname-override", c.Name, "--v=2")
	}
	all.Wait()
	return nil
}

// importImages gives containerd every image. They are independent of one another, but the work is
// bound by the CPU, so they go one after the other.
func importImages(ctx context.Context, s *supervise.Supervisor, c Config, log *os.File) error {
	var failed []error
	for i, img := range c.Images {
		start := time.Now()
		argv := []string{"ctr", "-n", "k8s.io", "images", "import", imagePath(i)}
		if err := s.Run(ctx, supervise.Program{Name: "image-import", Argv: argv}); err != nil {
			failed = append(failed, fmt.Errorf("image %s: %w", img.Name, err))
			continue
		}
		fmt.Fprintf(log, "image %s imported in %.2fs\n", img.Name, time.Since(start).Seconds())
	}
	return errors.Join(failed...)
}

// waitForNode waits until the API server has the machine's Node object, which the lab makes with
// the pod range that belongs to the machine's number. A kubelet that came first would register
// itself and get the next free range.
func waitForNode(ctx context.Context, c Config) error {
	cert, err := tls.LoadX509KeyPair(kubeletClientCert, kubeletClientKey)
	if err != nil {
		return err
	}
	// Only whether the object is there is asked, and only inside the lab: the kubelet itself verifies the server.
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{cert}, InsecureSkipVerify: true},
	}}
	defer client.CloseIdleConnections()
	return waitFor(ctx, func() bool {
		resp, err := client.Get(c.APIServer + "/api/v1/nodes/" + c.Name)
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

func listens(socket string) bool {
	if _, err := os.Stat(socket); errors.Is(err, fs.ErrNotExist) {
		return false
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// waitFor asks until the answer is yes.
func waitFor(ctx context.Context, ok func() bool) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
