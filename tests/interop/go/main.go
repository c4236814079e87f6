// A program around canal-go that does as it is asked: one command a line, of each it
// answers with a line of JSON. See fix_interop.py.
package main

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/withlin/canal-go/client"
	"github.com/withlin/canal-go/protocol"
	"github.com/withlin/canal-go/protocol/entry"
	"google.golang.org/protobuf/proto"
)

const (
	socketTimeoutMs = 60000
	idleTimeoutMs   = 3600000
	milliseconds    = int32(2)
)

type object map[string]any

var connector *client.SimpleCanalConnector

func main() {
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		words := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		answer, err := carryOut(words[0], words[1:])
		if err != nil {
			answer = object{"error": err.Error()}
		}
		text, err := json.Marshal(answer)
		if err != nil {
			panic(err)
		}
		fmt.Println(string(text))
	}
}

// The client panics where a server refuses.
func carryOut(verb string, arguments []string) (answer object, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("panic: %v", reason)
		}
	}()
	return do(verb, arguments)
}

func do(verb string, arguments []string) (object, error) {
	none := object{}
	switch verb {
	case "connect":
		connector = client.NewSimpleCanalConnector(
			arguments[0], int(number(arguments[1])), arguments[2], arguments[3],
			arguments[4], socketTimeoutMs, idleTimeoutMs)
		return none, connector.Connect()
	case "subscribe":
		return none, connector.Subscribe(arguments[0])
	case "get":
		unit := milliseconds
		if arguments[1] == "" {
			return describeMessage(connector.GetWithOutAck(int32(number(arguments[0])), nil, nil))
		}
		timeout := number(arguments[1])
		return describeMessage(
			connector.GetWithOutAck(int32(number(arguments[0])), &timeout, &unit))
	case "take":
		return describeMessage(connector.Get(int32(number(arguments[0])), nil, nil))
	case "ack":
		return none, connector.Ack(number(arguments[0]))
	case "rollback":
		return none, connector.RollBack(number("0" + arguments[0]))
	case "disconnect":
		return none, connector.DisConnection()
	case "parse":
		data, err := hex.DecodeString(arguments[0])
		if err != nil {
			return nil, err
		}
		read := new(entry.Entry)
		if err := proto.Unmarshal(data, read); err != nil {
			return nil, err
		}
		return describeEntry(read)
	}
	return nil, fmt.Errorf("no command %q", verb)
}

func number(text string) int64 {
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(err)
	}
	return value
}

func describeMessage(message *protocol.Message, err error) (object, error) {
	if err != nil {
		return nil, err
	}
	entries := []object{}
	for i := range message.Entries {
		answer, err := describeEntry(&message.Entries[i])
		if err != nil {
			return nil, err
		}
		entries = append(entries, answer)
	}
	return object{"id": message.Id, "entries": entries}, nil
}

func describeEntry(e *entry.Entry) (object, error) {
	header := e.GetHeader()
	props := object{}
	for _, pair := range header.GetProps() {
		props[pair.GetKey()] = pair.GetValue()
	}
	content, err := describeContent(e)
	return object{
		"type":     e.GetEntryType().String(),
		"version":  header.GetVersion(),
		"file":     header.GetLogfileName(),
		"offset":   header.GetLogfileOffset(),
		"serverId": header.GetServerId(),
		"encoding": header.GetServerenCode(),
		"time":     header.GetExecuteTime(),
		"source":   header.GetSourceType().String(),
		"schema":   header.GetSchemaName(),
		"table":    header.GetTableName(),
		"length":   header.GetEventLength(),
		"event":    header.GetEventType().String(),
		"props":    props,
		"content":  content,
	}, err
}

func describeContent(e *entry.Entry) (object, error) {
	switch e.GetEntryType() {
	case entry.EntryType_TRANSACTIONBEGIN:
		begin := new(entry.TransactionBegin)
		err := proto.Unmarshal(e.GetStoreValue(), begin)
		return object{
			"threadId":      begin.GetThreadId(),
			"transactionId": begin.GetTransactionId(),
		}, err
	case entry.EntryType_TRANSACTIONEND:
		end := new(entry.TransactionEnd)
		err := proto.Unmarshal(e.GetStoreValue(), end)
		return object{
			"transactionId": end.GetTransactionId(),
			"time":          end.GetExecuteTime(),
		}, err
	}
	change := new(entry.RowChange)
	err := proto.Unmarshal(e.GetStoreValue(), change)
	rows := []object{}
	for _, row := range change.GetRowDatas() {
		rows = append(rows, object{
			"before": describeColumns(row.GetBeforeColumns()),
			"after":  describeColumns(row.GetAfterColumns()),
		})
	}
	return object{
		"tableId": change.GetTableId(),
		"event":   change.GetEventType().String(),
		"ddl":     change.GetIsDdl(),
		"sql":     change.GetSql(),
		"schema":  change.GetDdlSchemaName(),
		"rows":    rows,
	}, err
}

func describeColumns(columns []*entry.Column) []object {
	answer := []object{}
	for _, column := range columns {
		answer = append(answer, object{
			"index":     column.GetIndex(),
			"sqlType":   column.GetSqlType(),
			"name":      column.GetName(),
			"key":       column.GetIsKey(),
			"updated":   column.GetUpdated(),
			"null":      column.GetIsNull(),
			"value":     column.GetValue(),
			"length":    column.GetLength(),
			"mysqlType": column.GetMysqlType(),
		})
	}
	return answer
}
