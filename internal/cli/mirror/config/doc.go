// Package config is the command `theseus mirror config`.
package config
