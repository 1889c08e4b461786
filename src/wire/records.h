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
inline constexpr uint32_t kDiskTier = uint32_t{1} << 16;  // NodeRecord::tier: the folder of a tier
static_assert(sizeof(RecordsHead) == kRecordAlignment);

// ---- the receiver ----

template <typename Record>
class Records {
public:
    using First = typename FirstLayout<Record>::Type;

    explicit Records(const flatbuffers::Vector<const First*>* first) {
        if (first != nullptr) set(first->Data(), first->size() * sizeof(First), sizeof(First));
    }
    explicit Records(const flatbuffers::Vector<uint8_t>* sized) {
        if (sized->size() < sizeof(RecordsHead)) return;
        RecordsHead head;
        memcpy(&head, sized->data(), sizeof head);
        if (head.record_bytes == 0 || head.record_bytes % kRecordAlignment != 0) return;
        set(sized->data() + sizeof head, sized->size() - sizeof head, head.record_bytes);
    }

    // Called by decode_reply(): the other functions need it.
    bool is_valid() const { return is_valid_; }
    size_t size() const { return count_; }
    Record operator[](size_t i) const {
        const uint8_t* at = data_ + i * record_bytes_;
        Record record;
        if (record_bytes_ < sizeof record) {
            memcpy(static_cast<void*>(&record), at, record_bytes_);
            return record;
        }
        memcpy(static_cast<void*>(&record), at, sizeof record);
        return record;
    }

private:
    void set(const uint8_t* data, size_t total_bytes, size_t record_bytes) {
        data_ = data;
        record_bytes_ = record_bytes;
        count_ = total_bytes / record_bytes;
        is_valid_ = count_ * record_bytes == total_bytes &&
                    (count_ == 0 || reinterpret_cast<uintptr_t>(data) % alignof(Record) == 0);
    }

    const uint8_t* data_ = nullptr;
    size_t record_bytes_ = 0;
    size_t count_ = 0;
    bool is_valid_ = false;  // false: none of either protocol, or malformed
};

// `first` returns the vector of protocol 1, if there are no sized records.
template <typename Record, typename First>
Records<Record> records_in(const flatbuffers::Vector<uint8_t>* sized, First&& first) {
    return sized != nullptr ? Records<Record>(sized) : Records<Record>(first());
}

inline Records<OpenRecord> records_of(const OpenReply& reply) {
    return records_in<OpenRecord>(reply.sized(), [&] { return reply.records(); });
}
inline Records<NodeRecord> records_of(const StatReply& reply) {
    return records_in<NodeRecord>(reply.sized(), [&] { return reply.records(); });
}
inline Records<NodeRecord> records_of(const ListReply& reply) {
    return records_in<NodeRecord>(reply.sized(), [&] { return reply.records(); });
}
inline Records<HolderRecord> records_of(const HoldersReply& reply) {
    return records_in<HolderRecord>(reply.sized(), [&] { return reply.records(); });
}
inline Records<NodeRecord> records_of(const UnlinkedReply& reply) {
    return records_in<NodeRecord>(reply.sized(), [&] { return reply.records(); });
}
inline Records<HolderRecord> holders_of(const UnlinkedReply& reply) {
    return records_in<HolderRecord>(reply.sized_holders(), [&] { return reply.holders(); });
}
inline Records<EventRecord> records_of(const WatchReply& reply) {
    return records_in<EventRecord>(reply.sized(), [&] { return reply.records(); });
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
