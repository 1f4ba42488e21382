// Package config has the command `theseus mirror config`.
package config
