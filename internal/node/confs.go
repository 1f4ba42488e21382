package node

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"

	"github.com/theseus-cni/theseus/internal/cluster"
)

// Bounds of what is read of the runtime's configurations: a longer file is not a network's.
const (
	mostConfs    = 20
	mostConfSize = 1 << 18
)

// confs reads the runtime's configurations. One that cannot be read says why: the runtime passes over it too.
func (n *Node) confs(files []string) []cluster.Conf {
	all := []cluster.Conf{}
	for _, file := range files[:min(len(files), mostConfs)] {
		conf := cluster.Conf{File: file}
		var text []byte
		name, err := n.inConf(file)
		if err == nil {
			text, err = readBounded(name)
		}
		if err == nil {
			err = parseConf(text, path.Ext(file) == ".conflist", &conf)
		}
		if err != nil {
			conf = cluster.Conf{File: file, Problem: err.Error()}
		}
		all = append(all, conf)
	}
	return all
}

func readBounded(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, mostConfSize+1))
	if err == nil && len(text) > mostConfSize {
		err = fmt.Errorf("it is longer than %d bytes", mostConfSize)
	}
	return text, err
}

// parseConf reads a list of plugins, or the one plugin of a file that is no list.
func parseConf(text []byte, list bool, into *cluster.Conf) error {
	type plugin struct {
		Type   string `json:"type"`
		Bridge string `json:"bridge"`
		MTU    int    `json:"mtu"`
		IPMasq bool   `json:"ipMasq"`
		IPAM   struct {
			Type    string `json:"type"`
			DataDir string `json:"dataDir"`
			Subnet  string `json:"subnet"`
			Ranges  [][]struct {
				Subnet string `json:"subnet"`
			} `json:"ranges"`
		} `json:"ipam"`
	}
	var conf struct {
		Name    string   `json:"name"`
		Plugins []plugin `json:"plugins"`
		plugin
	}
	if err := json.Unmarshal(text, &conf); err != nil {
		return err
	}
	if !list {
		conf.Plugins = []plugin{conf.plugin}
	}
	if len(conf.Plugins) == 0 || conf.Plugins[0].Type == "" {
		return fmt.Errorf("it names no plugin")
	}
	into.Network = conf.Name
	for _, p := range conf.Plugins {
		into.Plugins = append(into.Plugins, p.Type)
	}
	first := conf.Plugins[0]
	into.Bridge, into.MTU, into.IPAM = first.Bridge, first.MTU, first.IPAM.Type
	into.DataDir, into.IPMasq = first.IPAM.DataDir, first.IPMasq
	if first.IPAM.Subnet != "" {
		into.Subnets = append(into.Subnets, first.IPAM.Subnet)
	}
	for _, set := range first.IPAM.Ranges {
		for _, r := range set {
			into.Subnets = append(into.Subnets, r.Subnet)
		}
	}
	return nil
}
