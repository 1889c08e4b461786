// Records: the structs that replies have many of. A session with protocol 1 gets a vector of structs, whose size never
// changes. Later protocols send a vector of bytes: the size of a record, 4 zero bytes, and the records. So a record can
// grow at its end without a new protocol: a reader ignores bytes that it does not know, and reads zeros for those that
// it does not get.
#pragma once

#include <cstring>
#include <span>

#include "wire/message.h"

namespace gshm::core::wire {

// In protocol 1.
template <typename Record>
struct FirstLayout;
template <>
struct FirstLayout<NodeRecord> {
    using Type = NodeRecord1;
};
template <>
struct FirstLayout<OpenRecord> {
    using Type = OpenRecord1;
};
template <>
struct FirstLayout<HolderRecord> {
    using Type = HolderRecord1;
};
template <>
struct FirstLayout<EventRecord> {
    using Type = EventRecord1;
};

// The start of sized records. Their size is a multiple of kRecordAlignment, and they begin at one.
struct RecordsHead {
    uint32_t record_bytes;
    uint32_t reserved;
};
inline constexpr size_t kRecordAlignment = 8;
static_assert(sizeof(RecordsHead) == kRecordAlignment);

// ---- the receiver ----

template <typename Record>
class Records {
public:
    using First = typename FirstLayout<Record>::Type;

    Records(const flatbuffers::Vector<const First*>* first, const flatbuffers::Vector<uint8_t>* sized) {
        if (sized == nullptr) {
            if (first == nullptr) return;
            data_ = first->Data();
            total_bytes_ = first->size() * sizeof(First);
            record_bytes_ = sizeof(First);
        } else if (sized->size() >= sizeof(RecordsHead)) {
            data_ = sized->data() + sizeof(RecordsHead);
            total_bytes_ = sized->size() - sizeof(RecordsHead);
            RecordsHead head;
            memcpy(&head, sized->data(), sizeof head);
            if (head.record_bytes % kRecordAlignment == 0) record_bytes_ = head.record_bytes;
        }
    }

    // Called by decode_reply(): the other functions need it.
    bool is_valid() const {
        return record_bytes_ != 0 && total_bytes_ % record_bytes_ == 0 &&
               (total_bytes_ == 0 || reinterpret_cast<uintptr_t>(data_) % alignof(Record) == 0);
    }
    size_t size() const { return total_bytes_ / record_bytes_; }
    Record operator[](size_t i) const {
        Record record;
        const uint8_t* at = data_ + i * record_bytes_;
        if (record_bytes_ >= sizeof record) memcpy(static_cast<void*>(&record), at, sizeof record);
        else memcpy(static_cast<void*>(&record), at, record_bytes_);
        return record;
    }

private:
    const uint8_t* data_ = nullptr;
    size_t total_bytes_ = 0;
    size_t record_bytes_ = 0;  // 0: none of either protocol, or malformed
};

inline Records<OpenRecord> records_of(const OpenReply& reply) {
    return {reply.records(), reply.sized()};
}
inline Records<NodeRecord> records_of(const StatReply& reply) {
    return {reply.records(), reply.sized()};
}
inline Records<NodeRecord> records_of(const ListReply& reply) {
    return {reply.records(), reply.sized()};
}
inline Records<HolderRecord> records_of(const HoldersReply& reply) {
    return {reply.records(), reply.sized()};
}
inline Records<NodeRecord> records_of(const UnlinkedReply& reply) {
    return {reply.records(), reply.sized()};
}
inline Records<HolderRecord> holders_of(const UnlinkedReply& reply) {
    return {reply.holders(), reply.sized_holders()};
}
inline Records<EventRecord> records_of(const WatchReply& reply) {
    return {reply.records(), reply.sized()};
}

// ---- the sender ----

// The fields of a reply for its records; one of them is null.
template <typename Record>
struct RecordFields {
    flatbuffers::Offset<flatbuffers::Vector<const typename FirstLayout<Record>::Type*>> first;
    flatbuffers::Offset<flatbuffers::Vector<uint8_t>> sized;
};

template <typename Record>
RecordFields<Record> add_records(flatbuffers::FlatBufferBuilder& builder, uint32_t protocol,
                                 std::span<const Record> records) {
    using First = typename FirstLayout<Record>::Type;
    static_assert(sizeof(Record) >= sizeof(First) && sizeof(Record) % kRecordAlignment == 0);
    static_assert(alignof(Record) == alignof(First));
    RecordFields<Record> fields;
    if (protocol == 1) {
        builder.StartVector(records.size() * sizeof(First) / alignof(First), alignof(First));
        if constexpr (sizeof(Record) == sizeof(First)) {
            builder.PushBytes(reinterpret_cast<const uint8_t*>(records.data()), records.size_bytes());
        } else {  // a message is built from its end
            for (size_t i = records.size(); i-- > 0;) {
                builder.PushBytes(reinterpret_cast<const uint8_t*>(&records[i]), sizeof(First));
            }
        }
        fields.first = builder.EndVector(records.size());
    } else {
        constexpr RecordsHead kHead{sizeof(Record), 0};
        const size_t bytes = sizeof kHead + records.size_bytes();
        builder.StartVector(bytes / kRecordAlignment, kRecordAlignment);
        builder.PushBytes(reinterpret_cast<const uint8_t*>(records.data()), records.size_bytes());
        builder.PushBytes(reinterpret_cast<const uint8_t*>(&kHead), sizeof kHead);
        fields.sized = builder.EndVector(bytes);
    }
    return fields;
}

}  // namespace gshm::core::wire
