package node

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/theseus-cni/theseus/internal/cluster"
	bounds "github.com/theseus-cni/theseus/internal/safeio/bounded"
)

// sockets are where container runtimes listen unless the kubelet names another: containerd, CRI-O and cri-dockerd by
// their own defaults (the list of crictl), k3s and RKE2, MicroK8s, and k0s.
func sockets() []string {
	return []string{"/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/cri-dockerd.sock",
		"/run/k3s/containerd/containerd.sock", "/var/snap/microk8s/common/run/containerd.sock",
		"/run/k0s/containerd.sock"}
}

// maxRuntimeAnswer bounds what a runtime says about itself, in bytes. containerd's answer has 3 kB.
const maxRuntimeAnswer = 4 << 20

// errNoCRI is of a socket whose program serves no CRI, such as the containerd of Docker.
var errNoCRI = errors.New("it serves no CRI")

// askRuntimes asks the runtime that the kubelet uses, if that can be seen, else all that listen. Their folders must
// agree.
func (n *Node) askRuntimes(ctx context.Context) (cluster.Folders, error) {
	asked, from := sockets(), ""
	if endpoint := n.kubeletEndpoint(); endpoint != "" {
		asked, from = []string{endpoint}, " (the kubelet's)"
	}
	var found []cluster.Folders
	for _, socket := range asked {
		file, err := n.pathIn(socket)
		if err != nil {
			if from == "" {
				continue // no such runtime
			}
			return cluster.Folders{}, fmt.Errorf("%s%s: %w", socket, from, err)
		}
		told, err := n.askRuntime(ctx, fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
		file.Close()
		if errors.Is(err, errNoCRI) && from == "" {
			continue
		}
		if err != nil {
			return cluster.Folders{}, fmt.Errorf("%s%s: %w", socket, from, err)
		}
		told.Source += " at " + socket + from
		found = append(found, told)
	}
	if len(found) == 0 {
		told := cluster.DefaultFolders()
		told.Source = "the default of container runtimes"
		told.Problem = "no container runtime listens at " + strings.Join(asked, ", ")
		return told, nil
	}
	for _, other := range found[1:] {
		if other.Conf != found[0].Conf || !slices.Equal(other.Plugins, found[0].Plugins) {
			return cluster.Folders{}, fmt.Errorf("several container runtimes run here, and they read different "+
				"folders: %s "+
				"(%s), and %s (%s)", found[0].Conf, found[0].Source, other.Conf, other.Source)
		}
	}
	return found[0], nil
}

// askRuntime asks one runtime. containerd tells its folders in the CRI's answer about its status, CRI-O by HTTP on the
// same socket, and cri-dockerd has them on its command line.
func (n *Node) askRuntime(ctx context.Context, socket string) (cluster.Folders, error) {
	answer, err := criStatus(ctx, socket)
	if err != nil {
		return cluster.Folders{}, err
	}
	told, err := ofContainerd(answer)
	if err != nil || told.Conf != "" {
		told.Source = "the answer of containerd"
		return told, err
	}
	if lines := n.commandLines("cri-dockerd"); len(lines) > 0 {
		told, err := toFolders(cmp.Or(flagIn(lines[0], "--cni-conf-dir"), cluster.DefaultConfFolder),
			strings.Split(cmp.Or(flagIn(lines[0], "--cni-bin-dir"), cluster.DefaultPluginFolder), ","))
		told.Source = "the command line of cri-dockerd"
		return told, err
	}
	text, err := get(ctx, socket, "/config")
	if err != nil {
		return cluster.Folders{}, fmt.Errorf("the runtime reports its folders neither by the CRI nor as CRI-O "+
			"does: %w", err)
	}
	told, err = ofCRIO(text)
	told.Source = "the configuration of CRI-O"
	return told, err
}

// ofContainerd reads the folders in an answer of the CRI about its status; they are empty if the runtime is another.
func ofContainerd(answer []byte) (cluster.Folders, error) {
	info, err := infoOf(answer)
	if err != nil || info["cniconfig"] == "" {
		return cluster.Folders{}, err
	}
	// what containerd's library for CNI is set to (github.com/containerd/go-cni, ConfigResult)
	var used struct {
		PluginDirs    []string
		PluginConfDir string
	}
	if err := json.Unmarshal([]byte(info["cniconfig"]), &used); err != nil {
		return cluster.Folders{}, fmt.Errorf("read its CNI settings: %w", err)
	}
	told, err := toFolders(used.PluginConfDir, used.PluginDirs)
	if err != nil {
		return cluster.Folders{}, err
	}
	var config struct {
		Containerd struct {
			Runtimes map[string]struct {
				CNIConfDir string `json:"cniConfDir"`
			} `json:"runtimes"`
		} `json:"containerd"`
	}
	if err := json.Unmarshal([]byte(cmp.Or(info["config"], "{}")), &config); err != nil {
		return cluster.Folders{}, fmt.Errorf("read its settings: %w", err)
	}
	for name, handler := range config.Containerd.Runtimes {
		if dir := handler.CNIConfDir; dir != "" && path.Clean(dir) != told.Conf {
			if told.Handlers == nil {
				told.Handlers = map[string]string{}
			}
			told.Handlers[name] = path.Clean(dir)
		}
	}
	return told, nil
}

// ofCRIO reads the folders in CRI-O's configuration, which it prints as TOML: network_dir and plugin_dirs of the table
// crio.network.
func ofCRIO(text []byte) (cluster.Folders, error) {
	table, values := "", map[string][]string{}
	open := "" // a list that goes on in the next line
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		switch key, value, ok := strings.Cut(line, "="); {
		case open != "":
			values[open] = append(values[open], quoted(line)...)
			if strings.HasSuffix(line, "]") {
				open = ""
			}
		case strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			table = strings.Trim(line, "[] ")
		case ok && table == "crio.network":
			key, value = strings.TrimSpace(key), strings.TrimSpace(value)
			values[key] = quoted(value)
			if strings.HasPrefix(value, "[") && !strings.HasSuffix(value, "]") {
				open = key
			}
		}
	}
	if len(values["network_dir"]) != 1 {
		return cluster.Folders{}, errors.New("its configuration names no network_dir in crio.network")
	}
	return toFolders(values["network_dir"][0], values["plugin_dirs"])
}

// quoted are the texts in quotes in a line.
func quoted(line string) []string {
	var all []string
	for {
		at := strings.IndexAny(line, `"'`)
		if at < 0 {
			return all
		}
		text, rest, closed := strings.Cut(line[at+1:], line[at:at+1])
		if !closed {
			return all
		}
		all, line = append(all, text), rest
	}
}

// criStatus calls Status of the CRI's runtime.v1 with verbose set, and returns the answer as protobuf. A gRPC client
// would be larger than the agent's other parts together; one call needs none.
func criStatus(ctx context.Context, socket string) ([]byte, error) {
	const verbose = "\x08\x01"
	question := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(verbose)))
	request, err := http.NewRequestWithContext(ctx, http.MethodPost,
		"http://localhost/runtime.v1.RuntimeService/Status", bytes.NewReader(append(question, verbose...)))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/grpc")
	request.Header.Set("TE", "trailers")
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	response, body, err := call(request, socket, &protocols)
	if err != nil {
		return nil, err
	}
	header := response.Trailer
	if header.Get("Grpc-Status") == "" {
		header = response.Header // an answer without a message
	}
	switch code := header.Get("Grpc-Status"); {
	case code == "12": // unimplemented
		return nil, errNoCRI
	case response.StatusCode != http.StatusOK || code != "0":
		return nil, fmt.Errorf("the CRI answers %s, gRPC code %s: %s", response.Status, strconv.Quote(code),
			oneLine(header.Get("Grpc-Message")))
	case len(body) < 5 || body[0] != 0 || int(binary.BigEndian.Uint32(body[1:])) != len(body)-5:
		return nil, errors.New("the CRI's answer is cut short")
	}
	return body[5:], nil
}

// get reads a page that a runtime serves by HTTP on its socket.
func get(ctx context.Context, socket, page string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+page, nil)
	if err != nil {
		return nil, err
	}
	response, body, err := call(request, socket, nil)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return body, err
}

func call(request *http.Request, socket string, protocols *http.Protocols) (*http.Response, []byte, error) {
	transport := &http.Transport{Protocols: protocols,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxRuntimeAnswer+1))
	if err == nil && len(body) > maxRuntimeAnswer {
		err = fmt.Errorf("the answer is longer than %d bytes", maxRuntimeAnswer)
	}
	return response, body, err
}

// infoOf reads the field info of a StatusResponse (k8s.io/cri-api, runtime/v1): a map, number 2.
func infoOf(answer []byte) (map[string]string, error) {
	info := map[string]string{}
	err := eachField(answer, func(number protowire.Number, entry []byte) error {
		if number != 2 {
			return nil
		}
		var pair [2]string
		err := eachField(entry, func(number protowire.Number, text []byte) error {
			if number == 1 || number == 2 {
				pair[number-1] = string(text)
			}
			return nil
		})
		info[pair[0]] = pair[1]
		return err
	})
	return info, err
}

// eachField calls a function with each field of a protobuf message that is bytes, a text or another message.
func eachField(message []byte, do func(protowire.Number, []byte) error) error {
	for len(message) > 0 {
		number, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return fmt.Errorf("read the CRI's answer: %w", protowire.ParseError(size))
		}
		message = message[size:]
		if kind == protowire.BytesType {
			value, size := protowire.ConsumeBytes(message)
			if size < 0 {
				return fmt.Errorf("read the CRI's answer: %w", protowire.ParseError(size))
			}
			if err := do(number, value); err != nil {
				return err
			}
			message = message[size:]
			continue
		}
		if size = protowire.ConsumeFieldValue(number, kind, message); size < 0 {
			return fmt.Errorf("read the CRI's answer: %w", protowire.ParseError(size))
		}
		message = message[size:]
	}
	return nil
}

// kubeletEndpoint is the path of the socket that the kubelet uses, by its command line or its configuration file; empty
// if no process of the node shows it. k3s and MicroK8s run the kubelet inside another process.
func (n *Node) kubeletEndpoint() string {
	for _, line := range n.commandLines("kubelet") {
		endpoint := flagIn(line, "--container-runtime-endpoint")
		if file := flagIn(line, "--config"); endpoint == "" && path.IsAbs(file) {
			var config struct {
				ContainerRuntimeEndpoint string `json:"containerRuntimeEndpoint"`
			}
			text, err := readBounded(filepath.Join(n.Root, n.real(file)))
			if err == nil && bounds.Unmarshal(text, &config) == nil {
				endpoint = config.ContainerRuntimeEndpoint
			}
		}
		if endpoint = strings.TrimPrefix(endpoint, "unix://"); path.IsAbs(endpoint) {
			return endpoint
		}
	}
	return ""
}

// commandLines are those of a program's processes in the node's own mount namespace: a pod may run a program of any
// name.
func (n *Node) commandLines(program string) [][]string {
	proc := filepath.Join(n.Root, "proc")
	own, err := os.Readlink(filepath.Join(proc, "1/ns/mnt"))
	if err != nil {
		return nil
	}
	processes, _ := filepath.Glob(filepath.Join(proc, "[0-9]*")) // the pattern is valid
	var found [][]string
	for _, process := range processes {
		text, err := readBounded(filepath.Join(process, "cmdline"))
		line := strings.Split(string(text), "\x00")
		if err != nil || path.Base(line[0]) != program {
			continue
		}
		if mounts, err := os.Readlink(filepath.Join(process, "ns/mnt")); err == nil && mounts == own {
			found = append(found, line)
		}
	}
	return found
}

// flagIn is the value of a flag on a command line.
func flagIn(line []string, flag string) string {
	for i, word := range line {
		if value, ok := strings.CutPrefix(word, flag+"="); ok {
			return value
		}
		if word == flag && i+1 < len(line) {
			return line[i+1]
		}
	}
	return ""
}
