// Package cloud is the command `theseus mirror cloud`.
package cloud
